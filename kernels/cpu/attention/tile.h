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
// Rows and vectors in one block of chains: enough to hide fma latency, few enough for the registers
// (16 + 4 + 1 of 32, 8 + 2 + 1 of 16).
constexpr int kRowBlock = 4;
constexpr int kVecBlock = kRegisters == 32 ? 4 : 2;

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
/// prefetcher predicts them, so the sums over one tile prefetch the lines of the next into L2, a
/// few at a time: prefetches issued all at once wait for each other. Integers, which take half the
/// time, go past L2 (kLocality 0): 3 to 18 percent faster from memory on Zen 5.
struct Next {
  const char* k[kSubTiles];
  const char* v[kSubTiles];
  int64_t k_row_bytes;  ///< of a block
  int64_t v_row_bytes;  ///< one position
  int32_t v_value_bits;

  template <int kLocality>
  HEARTH_SIMD void ask_k(int32_t row) const {
    for (const char* sub : k) __builtin_prefetch(sub + row * k_row_bytes, 0, kLocality);
  }
  /// 64 dimensions, starting with `first`, take two lines in f16.
  HEARTH_SIMD void ask_v(int j, int64_t first) const {
    const char* row = v[j / kSubTile] + j % kSubTile * v_row_bytes + first * v_value_bits / 8;
    __builtin_prefetch(row, 0, 2);
    __builtin_prefetch(row + 64, 0, 2);
  }
  /// The same of two positions that lie together.
  HEARTH_SIMD void ask_pairs(int pair, int64_t first) const {
    const char* row = v[2 * pair / kSubTile] + 2 * pair % kSubTile * v_row_bytes;
    __builtin_prefetch(row + first * v_value_bits / 4, 0, 0);
    if (v_value_bits == 8) __builtin_prefetch(row + first * v_value_bits / 4 + 64, 0, 0);
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
