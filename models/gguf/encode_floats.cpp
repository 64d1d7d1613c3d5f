#include "models/gguf/encode_floats.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/base/check.h"

namespace hearth::models {
namespace {

constexpr size_t kBlock = 32;
constexpr size_t kBlockBytes = 2 + kBlock;

void encode_q8_0_block(const float* x, std::byte* out) {
  float most = 0.0f;
  for (size_t i = 0; i < kBlock; ++i) most = std::max(most, std::fabs(x[i]));
  const uint16_t d = half_from_float(most / 127.0f);
  std::memcpy(out, &d, sizeof(d));
  const float inverse = most == 0.0f ? 0.0f : 127.0f / most;
  for (size_t i = 0; i < kBlock; ++i) {
    const auto q = static_cast<int8_t>(std::nearbyint(x[i] * inverse));
    std::memcpy(out + 2 + i, &q, 1);
  }
}

}  // namespace

uint16_t half_from_float(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);   // NaN
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // rounds past 65504
  if (magnitude < 0x38800000u) {
    // Subnormal half: adding 0.5 aligns the wanted bits at the bottom of the float, and the
    // addition itself rounds to even.
    const float aligned = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(aligned) - 0x3f000000u));
  }
  // Rebias the exponent (127 to 15) and drop 13 mantissa bits, to even on ties.
  const uint32_t rounded = magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1u);
  return static_cast<uint16_t>(sign | rounded >> 13);
}

std::vector<std::byte> encode_floats(kernels::DType dtype, std::span<const float> values) {
  std::vector<std::byte> out;
  switch (dtype) {
    case kernels::DType::kF32:
      out.resize(values.size_bytes());
      std::memcpy(out.data(), values.data(), values.size_bytes());
      return out;
    case kernels::DType::kF16:
      out.resize(values.size() * 2);
      for (size_t i = 0; i < values.size(); ++i) {
        const uint16_t half = half_from_float(values[i]);
        std::memcpy(out.data() + 2 * i, &half, sizeof(half));
      }
      return out;
    case kernels::DType::kQ8_0:
      HEARTH_CHECK(values.size() % kBlock == 0, "{} values", values.size());
      out.resize(values.size() / kBlock * kBlockBytes);
      for (size_t b = 0; b < values.size() / kBlock; ++b) {
        encode_q8_0_block(values.data() + b * kBlock, out.data() + b * kBlockBytes);
      }
      return out;
    default: break;
  }
  HEARTH_CHECK(false, "no encoder for {}", kernels::info(dtype).name);
  return out;
}

}  // namespace hearth::models
