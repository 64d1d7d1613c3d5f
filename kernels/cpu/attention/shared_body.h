#pragma once
// What both attention bodies share.

#include "kernels/cpu/attention/kernels.h"
#include "kernels/cpu/simd/math.h"

namespace hearth::kernels {
namespace {

constexpr float kMinusInfinity = -__builtin_inff();
constexpr int kSubTile = 16;  // positions that are certain to lie in one block
constexpr int kSubTiles = kSoftmaxTile / kSubTile;

/// Addresses of the next tile's K and V. Blocks are scattered over the pool, where no hardware
/// prefetcher predicts them, so the work on one tile prefetches the lines of the next into L2, a
/// few at a time: prefetches issued all at once wait for each other.
struct Next {
  const char* k[kSubTiles];
  const char* v[kSubTiles];
  int64_t k_row_bytes;  ///< one dimension of a block
  int64_t v_row_bytes;  ///< one position
  int64_t value_bytes;
  bool wanted;

  HEARTH_SIMD void ask_k(int32_t d) const {
    for (const char* sub : k) __builtin_prefetch(sub + d * k_row_bytes, 0, 2);
  }
  /// Dimensions 2 pair and 2 pair + 1 of one sub-tile.
  HEARTH_SIMD void ask_pair(int sub, int32_t pair) const {
    const char* row = k[sub] + 2 * pair * k_row_bytes;
    __builtin_prefetch(row, 0, 2);
    if (k_row_bytes > 32) __builtin_prefetch(row + k_row_bytes, 0, 2);
  }
  /// All of position j.
  HEARTH_SIMD void ask_position(int j) const {
    const char* row = v[j / kSubTile] + j % kSubTile * v_row_bytes;
    for (int64_t at = 0; at < v_row_bytes; at += 64) __builtin_prefetch(row + at, 0, 2);
  }
  /// 64 dimensions, starting with `first`, take two lines in f16.
  HEARTH_SIMD void ask_v(int j, int64_t first) const {
    const char* row = v[j / kSubTile] + j % kSubTile * v_row_bytes + first * value_bytes;
    __builtin_prefetch(row, 0, 2);
    __builtin_prefetch(row + 64, 0, 2);
  }
};

/// K and V of one tile where they are stored: their blocks, null where no row sees the sub-tile.
struct StoredTile {
  const char* k[kSubTiles];
  const char* v[kSubTiles];   ///< null also if V is the front of K
  int32_t offset[kSubTiles];  ///< of the first position in its block
};

/// Data shared by the rows of a split, and their results so far.
struct Work {
  const AttentionSplit& a;
  AttentionPartial* partial;
  int64_t padded;
  float* l;  ///< (rows, 16)
  float* o;  ///< (rows, padded)
};

/// The positions of [tile, tile + kSoftmaxTile) that a row attends to, relative to `tile`.
struct Range {
  int from;
  int to;

  Range(const AttentionSplit& a, int row, int32_t tile)
      : from(a.first[row] > tile ? a.first[row] - tile : 0),
        to(a.last[row] - tile < kSoftmaxTile - 1 ? a.last[row] - tile + 1 : kSoftmaxTile) {}
  bool operator==(const Range&) const = default;
};

struct SeenByRows {
  int32_t first;
  int32_t last;
};

/// Clears the results of all rows. Returns the positions of the split that any row sees.
SeenByRows begin_rows(const Work& w) {
  const AttentionSplit& a = w.a;
  SeenByRows seen{a.end, a.begin - 1};
  for (int r = 0; r < a.num_rows; ++r) {
    w.partial->m[r] = kMinusInfinity;
    for (int i = 0; i < 16; ++i) w.l[16 * r + i] = 0.0f;
    for (int64_t d = 0; d < w.padded; ++d) w.o[r * w.padded + d] = 0.0f;
    if (a.first[r] < seen.first) seen.first = a.first[r];
    if (a.last[r] > seen.last) seen.last = a.last[r];
  }
  if (seen.first < a.begin) seen.first = a.begin;
  if (seen.last > a.end - 1) seen.last = a.end - 1;
  return seen;
}

/// Sums the lanes of l.
void end_rows(const Work& w) {
  for (int r = 0; r < w.a.num_rows; ++r) {
    F lanes[kParts];
    for (int p = 0; p < kParts; ++p) lanes[p] = load(w.l + 16 * r + p * kLanes);
    w.partial->l[r] = sum16(lanes);
  }
}

/// Calls run(tile, stored, next) for each tile that a row sees, in ascending order.
template <typename Run>
HEARTH_SIMD void for_tiles(const AttentionSplit& a, const SeenByRows& seen, int64_t value_bytes,
                           const Run& run) {
  const auto block_of = [&a](int32_t position) {
    return a.blocks[position / a.block_size] * a.block_bytes;
  };
  Next next{};
  next.k_row_bytes = a.block_size * value_bytes;
  next.v_row_bytes = a.v_dim * value_bytes;
  next.value_bytes = value_bytes;
  for (int32_t tile = seen.first / kSoftmaxTile * kSoftmaxTile; tile <= seen.last;
       tile += kSoftmaxTile) {
    StoredTile stored{};
    next.wanted = tile + 2 * kSoftmaxTile - kSubTile <= a.last_ahead;
    for (int sub = 0; sub < kSubTiles; ++sub) {
      const int32_t position = tile + sub * kSubTile;
      if (next.wanted) {
        const int32_t later = position + kSoftmaxTile;
        const int64_t block = block_of(later);
        const int32_t offset = later % a.block_size;
        next.k[sub] = a.k + block + offset * value_bytes;
        next.v[sub] = a.v == nullptr ? next.k[sub] : a.v + block + offset * next.v_row_bytes;
      }
      if (position + kSubTile <= seen.first || position > seen.last) continue;
      const int64_t block = block_of(position);
      stored.k[sub] = a.k + block;
      stored.v[sub] = a.v == nullptr ? nullptr : a.v + block;
      stored.offset[sub] = position % a.block_size;
    }
    run(tile, stored, next);
  }
}

}  // namespace
}  // namespace hearth::kernels
