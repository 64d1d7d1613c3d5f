#include "models/weights/coarse_rows.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/quant/quant_types.h"
#include "models/quantize/quantize_rows.h"

namespace hearth::models {
namespace {

using kernels::DType;

constexpr int64_t kCols = 512;

std::vector<float> wave(int64_t rows) {
  std::vector<float> out;
  for (int64_t i = 0; i < rows * kCols; ++i) {
    const auto x = static_cast<float>(i);
    out.push_back(std::sin(x * 0.37f) * (1 + std::cos(x * 0.011f)));
  }
  return out;
}

std::vector<float> values_of(DType type, std::span<const std::byte> bytes) {
  const kernels::DTypeInfo& type_info = kernels::info(type);
  std::vector<float> out(bytes.size() / type_info.block_bytes * type_info.block_elements);
  kernels::dequantize(type, bytes, out);
  return out;
}

TEST_CASE("coarse rows: each value within one step of the block's largest, eight to the side") {
  for (const DType type : {DType::kF32, DType::kBF16, DType::kQ8_0, DType::kQ6_K, DType::kQ5_K}) {
    CAPTURE(kernels::info(type).name);
    REQUIRE(can_be_coarser(type, kCols));
    const auto stored = quantize_rows(type, wave(3), kCols);
    REQUIRE(stored.ok());
    const std::vector<float> want = values_of(type, *stored);
    const auto coarse = coarse_rows(type, *stored);
    REQUIRE(coarse.size() == kernels::bytes_of(DType::kQ4_0, want.size()));
    const std::vector<float> met = values_of(DType::kQ4_0, coarse);
    for (size_t i = 0; i < want.size(); ++i) {
      float most = 0;
      for (size_t k = i / 32 * 32; k < i / 32 * 32 + 32; ++k) {
        most = std::max(most, std::fabs(want[k]));
      }
      // Of values of the other sign, the largest is 7 steps: one step off at most.
      CHECK(std::fabs(met[i] - want[i]) <= most / 8 * 1.01f);
    }
  }
}

TEST_CASE("coarse rows: a largest value is kept, and zeros stay zeros") {
  std::vector<float> values(64, 0.0f);
  values[5] = -3;
  values[9] = 2.9f;
  const auto met =
      values_of(DType::kQ4_0, coarse_rows(DType::kF32, std::as_bytes(std::span(values))));
  CHECK(met[5] == -3);
  CHECK(met[9] == 7 * 0.375f);
  for (size_t i = 0; i < met.size(); ++i) CHECK((i == 5 || i == 9 || met[i] == 0));
}

TEST_CASE("coarse rows: a value that is not finite spoils its block and no other") {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    std::vector<float> values = wave(1);
    values[40] = bad;
    const auto met =
        values_of(DType::kQ4_0, coarse_rows(DType::kF32, std::as_bytes(std::span(values))));
    for (size_t i = 0; i < met.size(); ++i) CHECK(std::isfinite(met[i]) == (i < 32 || i >= 64));
  }
}

TEST_CASE("coarse rows: types of few bits, and rows that are not whole blocks, stay") {
  for (const DType type : {DType::kQ4_0, DType::kQ4_K, DType::kQ3_K, DType::kIQ4_XS}) {
    CHECK_FALSE(can_be_coarser(type, kCols));
  }
  CHECK_FALSE(can_be_coarser(DType::kF32, 48));
}

}  // namespace
}  // namespace hearth::models
