#include "models/gguf/gguf_file.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "models/gguf/fingerprint.h"
#include "models/gguf/gguf_writer.h"
#include "tests/unit/models/raw_gguf.h"

namespace hearth::models {
namespace {

void check_refused(const RawGguf& raw, ErrorCode code, const std::string& message) {
  const auto file = raw.parse();
  REQUIRE_FALSE(file.ok());
  CHECK(file.error().code == code);
  CHECK(file.error().message == message);
}

template <typename T>
void check_get_error(const GgufFile& file, std::string_view key, const std::string& message) {
  const auto got = file.get<T>(key);
  REQUIRE_FALSE(got.ok());
  CHECK(got.error().code == ErrorCode::kCorrupt);
  CHECK(got.error().message == message);
}

std::filesystem::path scratch(const std::string& name) {
  const auto directory =
      std::filesystem::temp_directory_path() / ("hearth-models-test-" + std::to_string(::getpid()));
  std::filesystem::create_directories(directory);
  return directory / name;
}

TEST_CASE("the reader reads what the writer writes") {
  GgufWriter w;
  w.set_string("general.architecture", "llama");
  w.set_u32("a.u32", 7);
  w.set_f32("a.f32", 1.5f);
  w.set_bool("a.bool", true);
  const std::vector<std::string> words = {"one", "", "three"};
  w.set_strings("a.words", words);
  const std::vector<int32_t> ints = {-1, 0, 5};
  w.set_i32s("a.ints", ints);
  const std::vector<float> floats = {0.25f, -2.0f};
  w.set_f32s("a.floats", floats);
  const uint64_t vector_dims[] = {3}, matrix_dims[] = {32, 2};
  const std::vector<float> three = {1, 2, 3};
  std::vector<float> matrix(64);
  for (size_t i = 0; i < matrix.size(); ++i) matrix[i] = static_cast<float>(i) - 32;
  w.add_floats("v", vector_dims, kernels::DType::kF32, three);
  w.add_floats("h", matrix_dims, kernels::DType::kF16, matrix);
  w.add_floats("q", matrix_dims, kernels::DType::kQ8_0, matrix);

  const auto path = scratch("round trip.gguf");
  REQUIRE(w.write(path).ok());
  const auto opened = GgufFile::open(path);
  REQUIRE(opened.ok());
  const GgufFile& file = opened.value();
  CHECK(file.name() == "round trip");
  CHECK(file.version() == 3);
  CHECK(file.alignment() == 32);
  CHECK(file.metadata().size() == 7);
  CHECK(file.get<std::string_view>("general.architecture").value() == "llama");
  CHECK(file.get<uint32_t>("a.u32").value() == 7);
  CHECK(file.get<float>("a.f32").value() == 1.5f);
  CHECK(file.get<bool>("a.bool").value());
  const auto read_words = file.get<GgufStrings>("a.words");
  REQUIRE(read_words.ok());
  CHECK(std::vector<std::string>(read_words.value().begin(), read_words.value().end()) == words);
  const auto read_ints = file.get<GgufNumbers<int32_t>>("a.ints");
  REQUIRE(read_ints.ok());
  REQUIRE(read_ints.value().size() == 3);
  CHECK(read_ints.value()[0] == -1);
  CHECK(read_ints.value()[2] == 5);
  CHECK(file.get<GgufNumbers<float>>("a.floats").value()[1] == -2.0f);

  REQUIRE(file.tensors().size() == 3);
  const GgufTensor* v = file.find_tensor("v");
  REQUIRE(v != nullptr);
  CHECK(v->shape() == "[3]");
  CHECK(v->type_name() == "F32");
  CHECK(load_unaligned<float>(v->bytes.data() + 8) == 3.0f);
  const GgufTensor* q = file.find_tensor("q");
  REQUIRE(q != nullptr);
  CHECK(q->shape() == "[32,2]");
  CHECK(q->num_elements() == 64);
  CHECK(q->bytes.size() == 2 * 34);
  CHECK(file.find_tensor("absent") == nullptr);

  const auto in_memory = w.bytes();
  CHECK(std::equal(in_memory.begin(), in_memory.end(), file.parts()[0].content.begin(),
                   file.parts()[0].content.end()));
  CHECK_FALSE(std::filesystem::exists(path.string() + ".part"));
  std::filesystem::remove_all(path.parent_path());
}

TEST_CASE("files that cannot be opened are named with the reason") {
  const auto missing = GgufFile::open("/nonexistent/model.gguf");
  REQUIRE_FALSE(missing.ok());
  CHECK(missing.error().code == ErrorCode::kNotFound);
  const auto directory = GgufFile::open("/");
  REQUIRE_FALSE(directory.ok());
  CHECK(directory.error().message == "/: not a regular file");
  const auto fifo = scratch("fifo");
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  CHECK_FALSE(GgufFile::open(fifo).ok());  // and does not wait for a writer
  const auto empty = scratch("empty.gguf");
  std::ofstream(empty).flush();
  const auto nothing = GgufFile::open(empty);
  REQUIRE_FALSE(nothing.ok());
  CHECK(nothing.error().message ==
        "no GGUF file: the file is empty: a download that did not begin? Fetch it again");
  GgufWriter w;
  CHECK_FALSE(w.write("/nonexistent/model.gguf").ok());
  std::filesystem::remove_all(fifo.parent_path());
}

TEST_CASE("versions 2 and 3 are read; others are refused by number") {
  CHECK(RawGguf(0, 0, 2).parse().ok());
  CHECK(RawGguf(0, 0, 3).parse().ok());
  check_refused(RawGguf(0, 0, 1), ErrorCode::kUnsupported, "header: GGUF version 1, want 2 or 3");
  check_refused(RawGguf(0, 0, 4), ErrorCode::kUnsupported, "header: GGUF version 4, want 2 or 3");
  check_refused(RawGguf(0, 0, 0x03000000), ErrorCode::kUnsupported,
                "header: version 3 in big-endian byte order, want little-endian");
  std::vector<std::byte> other(24, std::byte{'x'});
  const auto file = GgufFile::parse(other, "other");
  REQUIRE_FALSE(file.ok());
  CHECK(file.error().message == "header: magic 0x78787878, want 0x46554747 (GGUF)");
}

TEST_CASE("integers of any width are accepted where the value fits") {
  RawGguf raw(0, 9);
  raw.entry<uint8_t>("u8", GgufType::kU8, 200)
      .entry<int8_t>("i8", GgufType::kI8, -5)
      .entry<uint16_t>("u16", GgufType::kU16, 60000)
      .entry<int16_t>("i16", GgufType::kI16, 300)
      .entry<uint32_t>("u32", GgufType::kU32, 4000000000u)
      .entry<int32_t>("i32", GgufType::kI32, -2000000000)
      .entry<uint64_t>("u64", GgufType::kU64, UINT64_MAX)
      .entry<int64_t>("i64", GgufType::kI64, 77)
      .entry<double>("f64", GgufType::kF64, 0.5);
  const auto parsed = raw.parse();
  REQUIRE(parsed.ok());
  const GgufFile& file = parsed.value();
  CHECK(file.get<uint32_t>("u8").value() == 200);
  CHECK(file.get<int32_t>("i8").value() == -5);
  CHECK(file.get<uint32_t>("u16").value() == 60000);
  CHECK(file.get<uint64_t>("i16").value() == 300);
  CHECK(file.get<uint32_t>("u32").value() == 4000000000u);
  CHECK(file.get<int32_t>("i32").value() == -2000000000);
  CHECK(file.get<uint64_t>("u64").value() == UINT64_MAX);
  CHECK(file.get<int32_t>("i64").value() == 77);
  CHECK(file.get<float>("f64").value() == 0.5f);
  check_get_error<uint32_t>(file, "i8", "i8: -5, want 0 to 4294967295");
  check_get_error<int32_t>(file, "u32", "u32: 4000000000, want -2147483648 to 2147483647");
  check_get_error<uint32_t>(file, "u64", "u64: 18446744073709551615, want 0 to 4294967295");
  check_get_error<uint32_t>(file, "f64", "f64: f64, want an integer");
  check_get_error<float>(file, "u8", "u8: u8, want a floating-point number");
  check_get_error<bool>(file, "u8", "u8: u8, want a bool");
  check_get_error<std::string_view>(file, "u8", "u8: u8, want a string");
  check_get_error<GgufStrings>(file, "u8", "u8: u8, want an array of strings");
  check_get_error<uint32_t>(file, "none", "none: missing");
  CHECK(file.get_or<uint32_t>("none", 3).value() == 3);
  CHECK_FALSE(file.get_or<uint32_t>("i8", 3).ok());  // there, and wrong
}

TEST_CASE("arrays: types, ranges, nesting") {
  RawGguf raw(0, 5);
  raw.key("strings", GgufType::kArray).put<uint32_t>(8).put<uint64_t>(2).text("a").text("bc");
  raw.key("u64s", GgufType::kArray).put<uint32_t>(10).put<uint64_t>(2).put<uint64_t>(1);
  raw.put<uint64_t>(1ull << 40);
  raw.key("nested", GgufType::kArray).put<uint32_t>(9).put<uint64_t>(1);
  raw.put<uint32_t>(0).put<uint64_t>(3).put<uint8_t>(1).put<uint8_t>(2).put<uint8_t>(3);
  raw.key("nans", GgufType::kArray).put<uint32_t>(6).put<uint64_t>(1);
  raw.put(std::numeric_limits<float>::quiet_NaN());
  raw.key("empty", GgufType::kArray).put<uint32_t>(8).put<uint64_t>(0);
  const auto parsed = raw.parse();
  REQUIRE(parsed.ok());
  const GgufFile& file = parsed.value();
  CHECK(file.get<GgufStrings>("strings").value().size() == 2);
  const auto empty = file.get<GgufStrings>("empty");
  REQUIRE(empty.ok());
  CHECK(empty.value().size() == 0);
  CHECK(empty.value().begin() == empty.value().end());
  check_get_error<GgufNumbers<int32_t>>(file, "u64s",
                                        "u64s: 1099511627776, want -2147483648 to 2147483647");
  check_get_error<GgufNumbers<float>>(file, "nans", "nans: element 0 is nan, want finite numbers");
  check_get_error<GgufNumbers<int32_t>>(file, "strings",
                                        "strings: array of string, want an array of integers");
  check_get_error<uint32_t>(file, "u64s", "u64s: array of u64, want an integer");
  CHECK(file.find("nested")->payload.size() == 15);

  RawGguf deep(0, 1);
  deep.key("deep", GgufType::kArray);
  for (int i = 0; i < 1000; ++i) deep.put<uint32_t>(9).put<uint64_t>(1);
  check_refused(deep, ErrorCode::kCorrupt, "deep: arrays nested more than 4 deep");
}

TEST_CASE("metadata errors name the key, what was met and what was wanted") {
  check_refused(
      RawGguf(0, 2).entry<uint8_t>("k", GgufType::kU8, 1).entry<uint8_t>("k", GgufType::kU8, 2),
      ErrorCode::kCorrupt, "k: the key is there twice");
  check_refused(RawGguf(0, 1).entry<uint8_t>("b", GgufType::kBool, 2).put<uint32_t>(0),
                ErrorCode::kCorrupt, "b: bool of value 2, want 0 or 1");
  check_refused(RawGguf(0, 1).text("k").put<uint32_t>(13).put<uint64_t>(0), ErrorCode::kCorrupt,
                "k: value type 13, want 0 to 12");
  check_refused(RawGguf(0, 1).text("").put<uint32_t>(0).put<uint64_t>(0), ErrorCode::kCorrupt,
                "metadata entry 0: empty key");
  check_refused(RawGguf(0, 1).put<uint64_t>(UINT64_MAX).put<uint64_t>(0), ErrorCode::kCorrupt,
                "metadata entry 0: key of 18446744073709551615 bytes at byte 24, want at most "
                "65535");
  check_refused(RawGguf(0, 1).key("s", GgufType::kString).put<uint64_t>(9).put<uint64_t>(0),
                ErrorCode::kCorrupt, "s: string at byte 45 wants 9 bytes, the file has 8 left");
  check_refused(
      RawGguf(0, 1).key("a", GgufType::kArray).put<uint32_t>(10).put<uint64_t>(1ull << 61),
      ErrorCode::kCorrupt,
      "a: 2305843009213693952 values of type u64 at byte 49, the file has 0 bytes left");
  check_refused(RawGguf(UINT64_MAX, 0), ErrorCode::kCorrupt,
                "header: 18446744073709551615 tensors, want at most 0");
  check_refused(RawGguf(0, 2).entry<uint8_t>("k", GgufType::kU8, 1), ErrorCode::kCorrupt,
                "header: 2 metadata entries, want at most 1");
  // Bytes that could confuse a terminal or a JSON encoder do not reach the message.
  check_refused(RawGguf(0, 1).text("\x1b[31m\xff").put<uint32_t>(13).put<uint64_t>(0),
                ErrorCode::kCorrupt, "\\x1b[31m\\xff: value type 13, want 0 to 12");
  for (const uint32_t alignment : {0u, 3u, 48u, 1u << 21}) {
    check_refused(
        RawGguf(0, 1).entry("general.alignment", GgufType::kU32, alignment), ErrorCode::kCorrupt,
        "general.alignment: " + std::to_string(alignment) + ", want a power of two up to 1048576");
  }
}

TEST_CASE("the error for a file that is not a model names what it is and what to do") {
  const auto path = scratch("foreign.gguf");
  const auto message_of = [&path](const std::string& content) {
    std::ofstream(path, std::ios::binary) << content;
    const auto opened = GgufFile::open(path);
    REQUIRE_FALSE(opened.ok());
    CHECK(opened.error().code == ErrorCode::kCorrupt);
    return opened.error().message;
  };
  const auto check_message = [&message_of](const std::string& content, const char* what) {
    const std::string message = message_of(content);
    CHECK_MESSAGE(message.find(what) != std::string::npos, message);
  };
  check_message("\n<!DOCTYPE html><html>", "web page (HTML)");
  check_message("<HTML lang=en>", "web page (HTML)");
  check_message("version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 5\n",
                "Git LFS pointer");
  check_message("PK\x03\x04 and so on", "zip archive");
  check_message(std::string("\x20\0\0\0\0\0\0\0{\"__metadata__\"", 23), "safetensors");
  check_message(R"({"error":"Entry not found"})", "what a server answered");
  check_message(std::string(64, '\0'), "begins with zeros");
  check_message("xxxxyyyy", "magic 0x78787878");

  GgufWriter w;
  const uint64_t dims[] = {64};
  w.add_floats("t", dims, kernels::DType::kF32, std::vector<float>(64, 1.0f));
  const std::vector<std::byte> whole = w.bytes();
  for (const size_t size : {whole.size() - 8, size_t{20}}) {
    check_message(std::string(reinterpret_cast<const char*>(whole.data()), size),
                  "an unfinished download?");
  }
  std::filesystem::remove(path);
}

TEST_CASE("one part of a model in several files is refused as such") {
  GgufWriter w;
  w.set_u32("split.no", 1);
  w.set_u32("split.count", 3);
  const std::vector<std::byte> part = w.bytes();
  const auto parsed = GgufFile::parse(part, "part");
  REQUIRE_FALSE(parsed.ok());
  CHECK(parsed.error().code == ErrorCode::kUnsupported);
  CHECK(parsed.error().message.find("part 2 of 3") != std::string::npos);
  GgufWriter one;
  one.set_u32("split.count", 1);
  const std::vector<std::byte> whole = one.bytes();
  CHECK(GgufFile::parse(whole, "whole").ok());
}

TEST_CASE("tensor errors name the tensor, what was met and what was wanted") {
  constexpr uint32_t kF32 = 0, kQ8_0 = 8;
  const auto one = [](std::initializer_list<uint64_t> dims, uint32_t type, uint64_t offset,
                      size_t bytes) {
    RawGguf raw(1, 0);
    raw.tensor("t", dims, type, offset).data(bytes);
    return raw;
  };
  CHECK(one({4, 2}, kF32, 0, 32).parse().ok());
  CHECK(one({32, 1, 1, 2}, kQ8_0, 32, 100).parse().ok());
  check_refused(one({4, 2}, kF32, 0, 31), ErrorCode::kCorrupt,
                "t: 32 bytes at offset 0, the file has 31 bytes of tensor data");
  check_refused(one({4, 2}, kF32, 32, 63), ErrorCode::kCorrupt,
                "t: 32 bytes at offset 32, the file has 63 bytes of tensor data");
  check_refused(one({4, 2}, kF32, UINT64_MAX - 31, 64), ErrorCode::kCorrupt,
                "t: 32 bytes at offset 18446744073709551584, the file has 64 bytes of tensor data");
  check_refused(one({4}, kF32, 8, 64), ErrorCode::kCorrupt, "t: offset 8, want a multiple of 32");
  check_refused(one({}, kF32, 0, 64), ErrorCode::kCorrupt, "t: 0 dimensions, want 1 to 4");
  check_refused(one({1, 1, 1, 1, 1}, kF32, 0, 64), ErrorCode::kCorrupt,
                "t: 5 dimensions, want 1 to 4");
  check_refused(one({4, 0}, kF32, 0, 64), ErrorCode::kCorrupt,
                "t: shape [4,0], want dimensions of at least 1 and a product below 2^63");
  check_refused(one({1ull << 32, 1ull << 32}, kF32, 0, 64), ErrorCode::kCorrupt,
                "t: shape [4294967296,4294967296], want dimensions of at least 1 and a product "
                "below 2^63");
  check_refused(one({1ull << 62}, kF32, 0, 64), ErrorCode::kCorrupt,
                "t: shape [4611686018427387904] of F32 is too large to count");
  check_refused(one({33}, kQ8_0, 0, 64), ErrorCode::kCorrupt,
                "t: Q8_0 with rows of 33 elements, want a multiple of 32");

  RawGguf twice(2, 0);
  twice.tensor("t", {4}, kF32, 0).tensor("t", {4}, kF32, 32).data(64);
  check_refused(twice, ErrorCode::kCorrupt, "t: the tensor is there twice");
  RawGguf overlap(2, 0);
  overlap.tensor("late", {4}, kF32, 32).tensor("early", {16}, kF32, 0).data(64);
  check_refused(overlap, ErrorCode::kCorrupt, "late: data at offset 32 overlaps that of early");
  RawGguf shared(2, 0);
  shared.tensor("a", {4}, kF32, 0).tensor("b", {4}, kF32, 0).data(64);
  CHECK_FALSE(shared.parse().ok());
}

TEST_CASE("a tensor of an unknown type is listed, and has no bytes to use") {
  RawGguf raw(2, 0);
  raw.tensor("strange", {32}, 77, 0).tensor("known", {4}, 0, 32).data(64);
  const auto file = raw.parse();
  REQUIRE(file.ok());
  const GgufTensor* strange = file.value().find_tensor("strange");
  REQUIRE(strange != nullptr);
  CHECK_FALSE(strange->dtype.has_value());
  CHECK(strange->type_name() == "type 77");
  CHECK(strange->bytes.empty());
  CHECK(file.value().find_tensor("known")->bytes.size() == 16);
  RawGguf outside(1, 0);
  outside.tensor("strange", {32}, 77, 64).data(64);
  CHECK_FALSE(outside.parse().ok());
}

TEST_CASE("another alignment moves the data") {
  RawGguf raw(1, 1);
  raw.entry<uint32_t>("general.alignment", GgufType::kU32, 256).tensor("t", {2}, 0, 256);
  raw.data(264, 256);
  const auto file = raw.parse();
  REQUIRE(file.ok());
  const GgufTensor& t = file.value().tensors()[0];
  CHECK((t.bytes.data() - file.value().parts()[0].content.data()) % 256 == 0);
  CHECK(t.bytes.data() + t.bytes.size() ==
        file.value().parts()[0].content.data() + file.value().parts()[0].content.size());
}

TEST_CASE("the fingerprint follows content, not name or time") {
  const auto a = scratch("a.bin"), b = scratch("b.bin");
  const std::string content(3'000'000, 'x');
  std::ofstream(a, std::ios::binary) << content;
  std::ofstream(b, std::ios::binary) << content;
  const auto of_a = fingerprint_file(a);
  REQUIRE(of_a.ok());
  CHECK(of_a.value().size() == 32);
  CHECK(of_a.value() == fingerprint_file(b).value());
  CHECK(of_a.value() == fingerprint(std::as_bytes(std::span(content))));
  // XXH3-128 of nothing, as published by its author.
  CHECK(fingerprint(std::span<const std::byte>()) == "99aa06d3014798d86001c324468d497f");

  const auto before = FileIdentity::of(a);
  REQUIRE(before.ok());
  CHECK(before.value().size_bytes == content.size());
  CHECK(before.value() == FileIdentity::of(a).value());
  CHECK(before.value() != FileIdentity::of(b).value());
  std::ofstream(a, std::ios::binary | std::ios::app) << 'y';
  CHECK(before.value() != FileIdentity::of(a).value());
  CHECK(fingerprint_file(a).value() != of_a.value());
  CHECK(fingerprint_file("/nonexistent").error().code == ErrorCode::kNotFound);
  CHECK(FileIdentity::of("/nonexistent").error().code == ErrorCode::kNotFound);
  std::filesystem::remove_all(a.parent_path());
}

}  // namespace
}  // namespace hearth::models
