#pragma once
// What attention rounds over K and V of q8_0 and q4_0, so that its products are those of integers,
// whose sums are exact in any order. The same in the reference and in every CPU table; CUDA has its
// own rules (kernels/cuda/attention/tiles_q8.cuh), and reference_ops(true) rounds nothing.
//
// Scores, over such K. Each 32 dimensions of a query (rotated if K is) become codes, as inputs of a
// matmul do (MatmulArgs in kernels/ops.h): d_q = max |q| / 127. One f32 chain per score, ascending:
//   score = fma(float(sum of code_q * code_k), d_k * (d_q * scale), score)
//
// Values, over such V if it is stored apart from K. Of the positions that a row sees in a tile of
// 64, at absolute multiples of 64:
//   w_j = e^(score_j - the largest score) * 32767, to an integer, half to even
//   m_j = d_j * (32767 / max |d|), to an integer, per 32 dimensions, d_j the scale of V
//   p_j = (w_j * m_j + 2^14) / 2^15, rounded down
//   l   = l * alpha + (beta / 32767) * sum of w_j
//   o   = o * alpha + (beta / 32767) * (max |d| * 32768 / 32767) * float(sum of p_j * code_j)
// alpha and beta are the powers of e that bring earlier weights and the tile's to the largest score
// so far. If a d is not finite, neither is o. Sums stay below 2^19 (scores) and 2^28 (values).

#include "kernels/ops/kv_layout.h"

namespace hearth::kernels {

inline constexpr float kWeightSteps = 32767.0f;
/// What the largest scale of V is multiplied by: p_j is less than the product by this factor.
inline constexpr float kScaleUnit = 32768.0f / 32767.0f;

/// Whether products of K, or of V, of this type are those of integers.
constexpr bool kv_integers(KvType type) { return type == KvType::kQ8_0 || type == KvType::kQ4_0; }

}  // namespace hearth::kernels
