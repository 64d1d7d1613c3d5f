#pragma once
// What the kernels share of a tile of positions: where its K and V are, in scratch memory or in
// place, and the next tile's addresses.

#include "kernels/cpu/attention/kernels.h"
#include "kernels/cpu/simd/math.h"

namespace hearth::kernels {
namespace {

constexpr int kSubTile = 16;  // positions that are certain to lie in one block
constexpr int kSubTiles = kSoftmaxTile / kSubTile;
constexpr int kScaleDims = 32;
constexpr int kPairBytes = kScaleDims / 2;  // of 32 codes of 4 bits
constexpr float kMinusInfinity = -__builtin_inff();
constexpr int kRowBlock = 4;

/// Vectors in one block of chains of `rows` rows: enough to hide the latency of a chain's steps,
/// few enough for the registers, of which sums take half. More vectors than lanes made code longer
/// and not faster (SSE).
constexpr int vec_block(int rows) {
  int vecs = kLanes;
  while (rows * vecs > kRegisters / 2 || vecs * kLanes > kSoftmaxTile) vecs /= 2;
  return vecs;
}

/// Calls block<n>(d) for blocks of n vectors from dimension d on, up to `padded`: kVecs at a time
/// while there are so many, then fewer.
template <int kVecs, typename Block>
HEARTH_SIMD void in_blocks(int64_t d, int64_t padded, const Block& block) {
  for (; d + kVecs * kLanes <= padded; d += kVecs * kLanes) block.template operator()<kVecs>(d);
  if constexpr (kVecs > 1) in_blocks<kVecs / 2>(d, padded, block);
}

constexpr int32_t num_scales(int32_t dims) { return (dims + kScaleDims - 1) / kScaleDims; }

/// Of V's scales of a tile (attention_rounding.h).
struct Multipliers {
  int16_t* of;   ///< (num_scales(v_dim), kSoftmaxTile)
  float* units;  ///< (num_scales(v_dim))
};

struct TileData {
  float* k;          ///< in scratch memory: (k_dim, kSoftmaxTile)
  float* v;          ///< (kSoftmaxTile, padded)
  int16_t* v_pairs;  ///< in the same place as v: (kSoftmaxTile / 2, padded), as store_pairs does
  int64_t padded;
  // In place. Sub-tiles that no row sees point to one that is seen; their scales are arbitrary.
  const char* k_in_place[kSubTiles];
  const char* v_in_place[kSubTiles];
  float* k_scales;  ///< (num_scales(k_dim), kSoftmaxTile)
  float* v_scales;  ///< (num_scales(v_dim), kSoftmaxTile)
  Multipliers multipliers;
  int16_t* weights;  ///< (kRowBlock, num_scales(v_dim), kSoftmaxTile)
  float* factors;    ///< (kRowBlock, num_scales(v_dim))
  int32_t block_size;
  int32_t v_dim;
};

/// Addresses of the next tile's K and V. Blocks are scattered over the pool, where no hardware
/// prefetcher predicts them, so the work on one tile prefetches the lines of the next, a few at a
/// time: prefetches issued all at once wait for each other, and the work waits for them. Products
/// of integers take half the time of those of f32, so half of their K is left to the softmax: with
/// all of it among the scores one query over 4096 positions took a quarter longer on Zen 5. Lines
/// go to L2 there; for products of f32 to L1, too, which was 3 percent faster.
struct Next {
  const char* k[kSubTiles];
  const char* v[kSubTiles];
  int64_t k_row_bytes;    ///< of a block
  int32_t k_rows_shared;  ///< that scores and softmax share; 0 if products are of f32
  int32_t v_value_bits;

  /// Rows of K whose positions of a sub-tile may share a line; a power of two.
  HEARTH_SIMD int32_t k_rows_of_line() const {
    return k_row_bytes < 64 ? static_cast<int32_t>(64 / k_row_bytes) : 1;
  }
  template <int kLocality>
  HEARTH_SIMD void ask_k(int32_t row) const {
    for (const char* sub : k) __builtin_prefetch(sub + row * k_row_bytes, 0, kLocality);
  }
  /// Half of the rows that are shared, next to scores of `row`.
  HEARTH_SIMD void ask_half_k(int32_t row) const {
    if (row % 2 == 0) ask_k<2>(row / 2);
  }
  /// The part-th of kNumParts parts of the other half.
  template <int kNumParts>
  HEARTH_SIMD void ask_other_k(int part) const {
    const int32_t half = (k_rows_shared + 1) / 2;
    const int32_t left = k_rows_shared - half;
    const int32_t end = half + left * (part + 1) / kNumParts;
    for (int32_t row = half + left * part / kNumParts; row < end; ++row) ask_k<2>(row);
  }
  /// A line of each sub-tile, for every 1024 bits of V of kWidth dimensions, starting with `first`,
  /// and of pairs of positions.
  template <int kWidth, int kLocality>
  HEARTH_SIMD void ask_v(int pair, int64_t first) const {
    const int bits = pair * kWidth * v_value_bits;
    if (bits % 1024 != 0) return;
    const int64_t line = first * v_value_bits / 32 + bits / 1024;
    for (const char* sub : v) __builtin_prefetch(sub + line * 64, 0, kLocality);
  }
};

/// e^x of one value, computed by the same operations as in a vector.
float exp1(float x) { return first(exp(set1(x))); }

/// score = cap * tanh(score / cap) for n scores, a multiple of 16.
void cap_scores(float* scores, int n, float cap) {
  for (int i = 0; i < n; i += kLanes) {
    store(scores + i, mul(tanh(div(load(scores + i), set1(cap))), set1(cap)));
  }
}

}  // namespace
}  // namespace hearth::kernels
