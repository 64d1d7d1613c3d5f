#pragma once
// Floats as sums of a few 16-bit numbers, for the tensor cores.

#include "kernels/cuda/device.cuh"

namespace hearth::kernels {

/// A power of two and its inverse, both of them normal numbers.
struct PowerOfTwo {
  float scale;
  float inverse;
};
/// The factor that brings a magnitude, given as the bits of a float, to 2^k .. 2^(k + 1), for k in
/// 0 .. 100. The factor for magnitudes below 2^(k - 120) is that for 2^(k - 120).
template <uint32_t k>
__device__ PowerOfTwo into_power(uint32_t magnitude) {
  uint32_t exponent = magnitude >> 23;
  exponent = exponent < k + 7 ? k + 7 : exponent > 254 ? 254 : exponent;
  return {__uint_as_float((254 + k - exponent) << 23),  // 2^(k - (exponent - 127))
          __uint_as_float((exponent - k) << 23)};
}
/// In this range f16 is finite and has its full precision. If the largest magnitude is an infinity
/// or a NaN, which stay what they are, all finite numbers still fit.
__device__ inline PowerOfTwo into_half(uint32_t magnitude) { return into_power<14>(magnitude); }

__device__ inline __half2 half2_of(uint32_t bits) {
  return __halves2half2(__ushort_as_half(static_cast<uint16_t>(bits)),
                        __ushort_as_half(static_cast<uint16_t>(bits >> 16)));
}
__device__ inline uint32_t half2_bits(__half2 pair) {
  return __half_as_ushort(__low2half(pair)) |
         static_cast<uint32_t>(__half_as_ushort(__high2half(pair))) << 16;
}
/// Differences and products of pairs of f16, rounded to f16.
__device__ inline uint32_t half2_sub(uint32_t a, uint32_t b) {
  return half2_bits(__hsub2_rn(half2_of(a), half2_of(b)));
}
__device__ inline uint32_t half2_mul(uint32_t a, uint32_t b) {
  return half2_bits(__hmul2_rn(half2_of(a), half2_of(b)));
}

__device__ inline uint16_t bits_of(Half value) { return value.bits; }
__device__ inline uint16_t bits_of(BFloat16 value) { return value.bits; }

/// Rounds to T and leaves the remainder in `value`; the remainder is zero if the T is not finite.
template <typename T>
__device__ T take_term(float* value) {
  T rounded;
  from_float(*value, &rounded);
  const float taken = to_float(rounded);
  const bool finite = (__float_as_uint(taken) & 0x7f800000u) != 0x7f800000u;
  *value = finite ? *value - taken : 0.0f;  // exact
  return rounded;
}

}  // namespace hearth::kernels
