// Weights that are NaN or infinite, in every type and in files that are read in pieces of any size.

#include "models/gguf/weight_check.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "kernels/quant/quant_types.h"
#include "models/gguf/gguf_writer.h"

namespace hearth::models {
namespace {

using kernels::DType;

constexpr DType kTypes[] = {
    DType::kF32,   DType::kF16,     DType::kBF16,   DType::kQ8_0,  DType::kQ4_0,    DType::kQ4_1,
    DType::kQ5_0,  DType::kQ5_1,    DType::kQ2_K,   DType::kQ3_K,  DType::kQ4_K,    DType::kQ5_K,
    DType::kQ6_K,  DType::kIQ4_NL,  DType::kIQ4_XS, DType::kMXFP4, DType::kTQ1_0,   DType::kTQ2_0,
    DType::kNVFP4, DType::kIQ2_XXS, DType::kIQ2_XS, DType::kIQ2_S, DType::kIQ3_XXS, DType::kIQ3_S,
    DType::kIQ1_S, DType::kIQ1_M};

struct Contents {
  explicit Contents(const GgufWriter& writer) : bytes(writer.bytes()) {}
  GgufFile parse() const {
    Result<GgufFile> file = GgufFile::parse(bytes, "file");
    REQUIRE_MESSAGE(file.ok(), (file.ok() ? "" : file.error().message));
    return std::move(file).value();
  }
  std::vector<std::byte> bytes;
};

Result<void> check_in_pieces(const GgufFile& file, std::mt19937_64& random, size_t largest) {
  WeightCheck check(file);
  std::span<const std::byte> left = file.parts()[0].content;
  while (!left.empty()) {
    const size_t size = std::min(left.size(), 1 + random() % largest);
    check.add(left.first(size));
    left = left.subspan(size);
  }
  return check.finish();
}

TEST_CASE("blocks of random bits are refused exactly when one of their values is not finite") {
  std::mt19937_64 random(7);
  int refused = 0, accepted = 0;
  for (int round = 0; round < 4000; ++round) {
    const DType type = kTypes[random() % std::size(kTypes)];
    const kernels::DTypeInfo& info = kernels::info(type);
    const bool plain = info.block_elements == 1;
    const uint64_t dims[] = {
        plain ? 5 : static_cast<uint64_t>(info.block_elements) * (1 + random() % 3)};
    std::vector<std::byte> bytes(kernels::bytes_of(type, dims[0]));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    // Scales of MXFP4 that are too large only together with large codes.
    if (type == DType::kMXFP4 && random() % 2 == 0) {
      bytes[0] = static_cast<std::byte>(250 + random() % 6);
      std::fill(bytes.begin() + 1, bytes.begin() + 17, static_cast<std::byte>(random() % 8));
    }
    std::vector<float> values(dims[0]);
    kernels::dequantize(type, bytes, values);
    const auto bad = std::ranges::find_if(values, [](float v) { return !std::isfinite(v); });
    GgufWriter w;
    w.set_string("general.name", std::string(random() % 9, 'x'));  // moves the data
    const uint64_t one[] = {1};
    w.add_floats("before", one, DType::kF32, std::vector<float>{1.0f});
    w.add_tensor("t", dims, type, bytes);
    w.add_floats("after", one, DType::kF32, std::vector<float>{1.0f});
    const Contents contents(w);
    const GgufFile file = contents.parse();
    const Result<void> met = check_in_pieces(file, random, round % 2 == 0 ? 7 : 4096);
    CAPTURE(info.name);
    REQUIRE(met.ok() == (bad == values.end()));
    if (met.ok()) {
      ++accepted;
      continue;
    }
    ++refused;
    CHECK(met.error().code == ErrorCode::kCorrupt);
    CHECK(met.error().message.find(
              fmt::format("t [{}]: value {} of {} is ", dims[0], bad - values.begin(), dims[0])) !=
          std::string::npos);
  }
  CHECK(refused > 200);
  CHECK(accepted > 200);
}

TEST_CASE("every block of every type is checked") {
  std::mt19937_64 random(11);
  for (const DType type : kTypes) {
    if (type == DType::kNVFP4) continue;  // every value is finite
    const kernels::DTypeInfo& info = kernels::info(type);
    CAPTURE(info.name);
    const auto block = static_cast<uint64_t>(info.block_elements);
    const uint64_t dims[] = {block * 2, 3};
    const std::vector<std::byte> zeros(kernels::bytes_of(type, block * 6));
    for (uint64_t at = 0; at < 6; ++at) {
      // All bits of one block set: NaN or infinite in every type.
      std::vector<std::byte> bytes = zeros;
      const auto size = static_cast<size_t>(info.block_bytes);
      std::fill_n(bytes.begin() + static_cast<int64_t>(at * size), size, std::byte{0xff});
      GgufWriter w;
      w.add_tensor("good", dims, type, zeros);
      w.add_tensor("bad", dims, type, std::move(bytes));
      const Contents contents(w);
      const GgufFile file = contents.parse();
      const Result<void> met = check_in_pieces(file, random, 64);
      REQUIRE_FALSE(met.ok());
      CHECK(met.error().message.find(
                fmt::format("bad [{},3]: value {} of ", dims[0], at * block)) != std::string::npos);
    }
    GgufWriter w;
    w.add_tensor("good", dims, type, zeros);
    const Contents contents(w);
    const GgufFile file = contents.parse();
    CHECK(check_in_pieces(file, random, 64).ok());
  }
}

TEST_CASE("tensors of types that cannot be computed with are skipped") {
  GgufWriter w;
  const uint64_t dims[] = {4};
  w.add_tensor("positions", dims, DType::kI32, std::vector<std::byte>(16, std::byte{0xff}));
  const Contents contents(w);
  const GgufFile file = contents.parse();
  WeightCheck check(file);
  check.add(file.parts()[0].content);
  CHECK(check.finish().ok());
}

}  // namespace
}  // namespace hearth::models
