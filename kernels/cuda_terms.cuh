#pragma once
// Floats as sums of a few numbers of 16 bits, for the tensor cores.

#include "kernels/cuda_device.cuh"

namespace hearth::kernels {

/// A power of two and its inverse, both normal numbers.
struct PowerOfTwo {
  float scale;
  float inverse;
};
/// What brings a magnitude, given as the bits of a float, to 2^14 .. 2^15, where f16 is finite and
/// as fine as it gets; below 2^-106 no further. Beside an infinity or a NaN, which stay what they
/// are, all finite numbers fit.
__device__ inline PowerOfTwo into_half(uint32_t magnitude) {
  uint32_t exponent = magnitude >> 23;
  exponent = exponent < 21 ? 21 : exponent > 254 ? 254 : exponent;
  return {__uint_as_float((268 - exponent) << 23),  // 2^(14 - (exponent - 127))
          __uint_as_float((exponent - 14) << 23)};
}

__device__ inline uint16_t bits_of(Half value) { return value.bits; }
__device__ inline uint16_t bits_of(BFloat16 value) { return value.bits; }

/// Rounds to T and leaves in `value` what is missing; zero where the T is not finite.
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
