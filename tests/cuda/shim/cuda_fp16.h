#pragma once
// The parts of CUDA's half precision header that hearth's kernels use, for the CPU.

#include <bit>
#include <cstdint>

struct __half {
  uint16_t bits;
};

inline __half __ushort_as_half(unsigned short bits) { return {bits}; }
inline unsigned short __half_as_ushort(__half value) { return value.bits; }

inline float __half2float(__half value) {
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x8000u) << 16;
  const uint32_t exponent = (value.bits >> 10) & 0x1fu;
  const uint32_t mantissa = value.bits & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | mantissa << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;  // subnormal: exact in f32
  return sign != 0 ? -magnitude : magnitude;
}

/// Nearest, ties to even.
inline __half __float2half_rn(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return {static_cast<uint16_t>(sign | 0x7e00u)};
  if (magnitude >= 0x47800000u) return {static_cast<uint16_t>(sign | 0x7c00u)};  // 65536 and up
  if (magnitude < 0x38800000u) {  // below 2^-14: adding 0.5 shifts the mantissa into place, rounded
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return {static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u))};
  }
  const uint32_t odd = magnitude >> 13 & 1u;
  const uint32_t rounded = magnitude - 0x38000000u + 0xfffu + odd;
  return {static_cast<uint16_t>(sign | rounded >> 13)};
}

struct __half2 {
  __half x;
  __half y;
};

inline __half2 __halves2half2(__half low, __half high) { return {low, high}; }
inline __half __low2half(__half2 pair) { return pair.x; }
inline __half __high2half(__half2 pair) { return pair.y; }

// Products of two f16 are exact in f32, and f32 has twice f16's digits and two more: rounding a
// difference to it first does not change the result.
inline __half2 __hsub2_rn(__half2 a, __half2 b) {
  return {__float2half_rn(__half2float(a.x) - __half2float(b.x)),
          __float2half_rn(__half2float(a.y) - __half2float(b.y))};
}
inline __half2 __hmul2_rn(__half2 a, __half2 b) {
  return {__float2half_rn(__half2float(a.x) * __half2float(b.x)),
          __float2half_rn(__half2float(a.y) * __half2float(b.y))};
}
