#include <doctest/doctest.h>

#include <string>

#include "models/safetensors/safetensors_file.h"

namespace hearth::models {
namespace {

std::string file_of(const std::string& header, const std::string& data) {
  std::string out;
  for (int shift = 0; shift < 64; shift += 8) {
    out += static_cast<char>(static_cast<uint64_t>(header.size()) >> shift & 0xFF);
  }
  return out + header + data;
}

Result<SafetensorsFile> parse(const std::string& bytes) {
  return SafetensorsFile::parse(std::as_bytes(std::span(bytes)));
}

const std::string kData(24, 'x');

TEST_CASE("safetensors: tensors with their bytes, in any order, with spaces after the header") {
  const std::string bytes = file_of(
      R"({"b":{"dtype":"BF16","shape":[2,2],"data_offsets":[16,24]},)"
      R"("__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}   )",
      kData);
  const auto file = parse(bytes);
  REQUIRE_MESSAGE(file.ok(), file.error().message);
  REQUIRE(file->tensors().size() == 2);
  const SafeTensor& b = file->tensors().at("b");
  CHECK(b.shape == std::vector<uint64_t>{2, 2});
  CHECK(b.bytes.size() == 8);
  CHECK(*b.dtype() == kernels::DType::kBF16);
  CHECK(b.bytes.data() == file->tensors().at("a").bytes.data() + 16);
}

TEST_CASE("safetensors: a type that weights cannot have is named when it is asked for") {
  const std::string bytes =
      file_of(R"({"a":{"dtype":"F8_E4M3","shape":[24],"data_offsets":[0,24]}})", kData);
  const auto file = parse(bytes);
  REQUIRE(file.ok());
  const auto type = file->tensors().at("a").dtype();
  REQUIRE_FALSE(type.ok());
  CHECK(type.error().code == ErrorCode::kUnsupported);
  CHECK(type.error().message == "a: type F8_E4M3, want F32, F16 or BF16");
}

TEST_CASE("safetensors: hostile headers are refused") {
  const char* headers[] = {
      "",
      "[]",
      "{",
      R"({"a":1})",
      R"({"a":{}})",
      R"({"a":{"dtype":"F32","shape":[4]}})",
      R"({"a":{"dtype":"F99","shape":[4],"data_offsets":[0,16]}})",
      R"({"a":{"dtype":"F32","shape":[-4],"data_offsets":[0,16]}})",
      R"({"a":{"dtype":"F32","shape":[4.0],"data_offsets":[0,16]}})",
      R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,16]}})",
      R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[16,0]}})",
      R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[16,32]}})",
      R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[-16,0]}})",
      R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16,24]}})",
      // The product of the dimensions exceeds 2^64.
      R"({"a":{"dtype":"F32","shape":[4294967296,4294967296,4],"data_offsets":[0,0]}})",
      R"({"a":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,4],"data_offsets":[0,16]}})",
      // Shared bytes, and one name twice.
      R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},"b":{"dtype":"F32","shape":[4],"data_offsets":[8,24]}})",
      R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},"a":{"dtype":"F32","shape":[2],"data_offsets":[16,24]}})",
  };
  for (const char* header : headers) {
    INFO(header);
    const std::string bytes = file_of(header, kData);
    const auto file = parse(bytes);
    REQUIRE_FALSE(file.ok());
    CHECK(file.error().code == ErrorCode::kCorrupt);
  }
}

TEST_CASE("safetensors: truncated, with a header longer than the file, or nested without end") {
  const std::string whole =
      file_of(R"({"a":{"dtype":"F32","shape":[6],"data_offsets":[0,24]}})", kData);
  for (size_t size = 0; size < whole.size(); ++size) {
    CHECK_FALSE(parse(whole.substr(0, size)).ok());
  }
  std::string longer = whole;
  longer[7] = '\x7f';
  CHECK_FALSE(parse(longer).ok());
  CHECK_FALSE(parse(file_of(R"({"a":)" + std::string(100'000, '['), "")).ok());
  CHECK_FALSE(parse(file_of("{" + std::string(100'000, '{'), "")).ok());
}

TEST_CASE("safetensors: an empty tensor is harmless") {
  const std::string bytes =
      file_of(R"({"a":{"dtype":"F32","shape":[0,4294967295],"data_offsets":[0,0]}})", "");
  const auto file = parse(bytes);
  REQUIRE_MESSAGE(file.ok(), file.error().message);
  CHECK(file->tensors().at("a").num_elements() == 0);
}

}  // namespace
}  // namespace hearth::models
