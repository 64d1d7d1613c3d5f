#include "models/gguf/encode_floats.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "kernels/ops/half.h"

namespace hearth::models {
namespace {

using kernels::DType;

float half_at(const std::vector<std::byte>& bytes, size_t offset) {
  uint16_t half;
  std::memcpy(&half, bytes.data() + offset, sizeof(half));
  return kernels::f32_from_f16(half);
}

TEST_CASE("F32 keeps every bit, F16 rounds") {
  const std::vector<float> values = {1.0f, -0.1f, 65504.0f};
  const auto f32 = encode_floats(DType::kF32, values);
  REQUIRE(f32.size() == 12);
  CHECK(std::memcmp(f32.data(), values.data(), 12) == 0);
  const auto f16 = encode_floats(DType::kF16, values);
  REQUIRE(f16.size() == 6);
  CHECK(half_at(f16, 0) == 1.0f);
  CHECK(half_at(f16, 2) == doctest::Approx(-0.1f).epsilon(1e-3));
  CHECK(half_at(f16, 4) == 65504.0f);
}

TEST_CASE("a Q8_0 value is off by at most half a step, the half scale's rounding included") {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> values(32 * 50);
  for (float& v : values) v = normal(random);
  const auto bytes = encode_floats(DType::kQ8_0, values);
  REQUIRE(bytes.size() == 34 * 50);
  for (size_t b = 0; b < 50; ++b) {
    float most = 0;
    for (size_t i = 0; i < 32; ++i) most = std::max(most, std::fabs(values[b * 32 + i]));
    const float d = half_at(bytes, b * 34);
    for (size_t i = 0; i < 32; ++i) {
      const auto q = static_cast<int8_t>(bytes[b * 34 + 2 + i]);
      CHECK(std::fabs(d * q - values[b * 32 + i]) <= most / 127 * 0.5f + most * 1e-3f);
    }
  }
  const auto zeros = encode_floats(DType::kQ8_0, std::vector<float>(32, 0.0f));
  CHECK(zeros == std::vector<std::byte>(34));
}

}  // namespace
}  // namespace hearth::models
