#pragma once
// How attention of the reference and of the CPU rounds over KV of f16, bf16 and q8_0, so that
// products are those of 16-bit integers. KV of f32 is not rounded, and CUDA has its own rule. Sums
// of integers are exact, so every instruction set has the same bits.
//
// q, one row of one head: multiples of max |q| / kMostQ.
//
// K and V of one position and head, K in chunks of kRoundedDims dimensions, V as a whole: multiples
// of step = 2^(floor(log2(bound)) - kValueBits), with bound the largest magnitude, or in q8_0 127
// times the largest scale of the dimensions. Integers are at most 4096. A bound that is infinite,
// NaN or 2^100 and more makes the position NaN; one below 2^-60 counts as 2^-60. Values of f16 from
// half of the bound on stay as they are.
//
// Weights: positions come in tiles of kSoftmaxTile at absolute multiples. Within a tile and a row,
// e^score times the step of the position's V is a multiple of the largest such product over
// kMostWeight. The sum of weights is that of the rounded ones.
//
// All round to nearest even. With 64 products per sum, no sum reaches 2^31.

#include <cstdint>

namespace hearth::kernels {

/// Positions that share one update of a row's maximum. It divides kAttentionSplit.
inline constexpr int kSoftmaxTile = 64;
inline constexpr int kRoundedDims = 64;
inline constexpr int kMostQ = 8191;
inline constexpr int kMostWeight = 8191;
inline constexpr int kValueBits = 11;

/// Bits of the smallest bound that counts as itself, and of the smallest that is too large.
inline constexpr int32_t kLeastBound = (127 - 60) << 23;
inline constexpr int32_t kBoundLimit = (127 + 100) << 23;

/// Bits of the step for a bound with these bits (of a float that is not negative).
constexpr int32_t step_bits(int32_t bound) {
  const int32_t finite = bound < kBoundLimit ? bound : kLeastBound;
  const int32_t held = finite > kLeastBound ? finite : kLeastBound;
  return (held & 0x7f800000) - (kValueBits << 23);
}

}  // namespace hearth::kernels
