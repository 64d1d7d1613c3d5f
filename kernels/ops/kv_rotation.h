#pragma once
// K in q8_0 and q4_0 is rotated before it is stored, and the queries that read it likewise, so that
// a few large dimensions do not set the step of the others. Source: Ashkboos et al. 2024 (QuaRot).
//
// Each whole 32 values of a head (the last ones are left as they are if they are fewer) are
// multiplied by the Hadamard matrix of that size in f32: for distances 16, 8, 4, 2, 1, pairs (a, b)
// that are so far apart become (a + b, a - b). Then K is multiplied by 1/4 and a query by 1/8. The
// matrix times itself is 32, so products of the two stay.

#include <cstdint>

#include "kernels/ops/kv_layout.h"

namespace hearth::kernels {

inline constexpr float kRotatedKey = 0.25f;
inline constexpr float kRotatedQuery = 0.125f;

/// Where V lies in K it would be rotated, too.
constexpr bool kv_rotated(KvType k, bool v_in_k) {
  return (k == KvType::kQ4_0 || k == KvType::kQ8_0) && !v_in_k;
}

/// Rotates the `dims` values of a head. `out` may be `x`.
inline void rotate_head(const float* x, int32_t dims, float factor, float* out) {
  for (int32_t first = 0; first + kKvScaleDims <= dims; first += kKvScaleDims) {
    float values[kKvScaleDims];
    for (int32_t i = 0; i < kKvScaleDims; ++i) values[i] = x[first + i];
    for (int32_t distance = kKvScaleDims / 2; distance > 0; distance /= 2) {
      for (int32_t pair = 0; pair < kKvScaleDims; pair += 2 * distance) {
        for (int32_t i = pair; i < pair + distance; ++i) {
          const float a = values[i];
          const float b = values[i + distance];
          values[i] = a + b;
          values[i + distance] = a - b;
        }
      }
    }
    for (int32_t i = 0; i < kKvScaleDims; ++i) out[first + i] = values[i] * factor;
  }
  for (int32_t i = dims / kKvScaleDims * kKvScaleDims; i < dims; ++i) out[i] = x[i];
}

}  // namespace hearth::kernels
