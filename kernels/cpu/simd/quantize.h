#pragma once
// Quantizing of inputs, on top of the vocabulary. Include after one of its headers and math.h.

#include <cstdint>

namespace hearth::kernels {
namespace {

/// Quantizes one block of one row as MatmulArgs defines it: d, the sums of both halves, and q.
HEARTH_SIMD float quantize_block(const float* x, int32_t (&sums)[2], int8_t (&q)[32]) {
  I largest[kParts];
#pragma GCC unroll 4
  for (int p = 0; p < kParts; ++p) {
    const float* at = x + p * kLanes;
    largest[p] = max_ints(magnitude(load(at)), magnitude(load(at + 16)));
  }
  const int32_t bits = max16(largest);
  float amax;
  __builtin_memcpy(&amax, &bits, sizeof amax);
  if (!(amax >= 1e-30f && amax <= 3.40282347e38f)) {
    for (int8_t& each : q) each = 0;
    sums[0] = sums[1] = 0;
    return amax / 127.0f;
  }
  const F inverse = set1(127.0f / amax);
#pragma GCC unroll 2
  for (int h = 0; h < 2; ++h) {
    I integers[kParts];
#pragma GCC unroll 4
    for (int p = 0; p < kParts; ++p) {
      const int at = 16 * h + p * kLanes;
      integers[p] = rounded(mul(load(x + at), inverse));
      store_i8(q + at, integers[p]);
    }
    sums[h] = sum16(integers);
  }
  return amax / 127.0f;
}

}  // namespace
}  // namespace hearth::kernels
