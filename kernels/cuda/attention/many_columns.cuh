#pragma once
// What the kernels for many rows have in common. The columns of a block are the heads of one KV
// head for as many consecutive rows of a sequence as fit; a warp has 16 of them, in registers, for
// all positions that they see.

#include "kernels/cuda/attention/tiles.cuh"

namespace hearth::kernels {
namespace {

__device__ inline int threads_of_block() { return static_cast<int>(blockDim.x); }

__host__ __device__ inline int many_heads_of_block(int heads_per_kv, int warps) {
  return heads_per_kv < warps * kColumns ? heads_per_kv : warps * kColumns;
}
__host__ __device__ inline int many_rows_of_block(int heads_per_kv, int warps) {
  return warps * kColumns / many_heads_of_block(heads_per_kv, warps);
}
/// Rows that share a block: `count` of them from `first` on.
struct ManyRows {
  int first;
  int count;  ///< 0: there are fewer blocks
  Seen seen;  ///< from the first to the last position that any of them sees
};
/// The rows of block `block`. A block begins at multiples of `most_rows` and at the start of a
/// sequence. Called by one warp.
__device__ inline ManyRows many_rows(const AttentionParams& a, int most_rows, int block) {
  const int lane = thread_x() % kWarp;
  const int count = *a.count;
  const auto begins = [&](int row) {
    return row < count && (row % most_rows == 0 || a.seq_idx[row] != a.seq_idx[row - 1]);
  };
  ManyRows rows{-1, 0, {0, 0}};
  int left = block;           // blocks before this one
  constexpr int kRounds = 8;  // of a row per lane, loaded together
  for (int base = 0; base < count && rows.first < 0; base += kRounds * kWarp) {
    bool begin[kRounds];
#pragma unroll
    for (int i = 0; i < kRounds; ++i) begin[i] = begins(base + i * kWarp + lane);
#pragma unroll
    for (int i = 0; i < kRounds; ++i) {
      unsigned starts = __ballot_sync(kAllLanes, begin[i]);
      for (; starts != 0 && rows.first < 0; starts &= starts - 1) {
        if (left-- > 0) continue;
        rows.first = base + i * kWarp;
        while ((starts >> rows.first % kWarp & 1u) == 0) ++rows.first;
      }
    }
  }
  if (rows.first < 0) return rows;
  // At most 128 rows, up to the next multiple or sequence.
  const int past = (rows.first / most_rows + 1) * most_rows;
  int end = past < count ? past : count;
  const int seq = a.seq_idx[rows.first];
  Seen own{INT32_MAX, 0};
  for (int base = rows.first; base < end; base += kWarp) {
    const bool same = base + lane < end && a.seq_idx[base + lane] == seq;
    const unsigned others = ~__ballot_sync(kAllLanes, same);
    if (same) {
      const Seen next = seen_by(a, base + lane);
      own.begin = next.begin < own.begin ? next.begin : own.begin;
      own.end = next.end > own.end ? next.end : own.end;
    }
    if (others != 0) {
      int last = 0;
      while ((others >> last & 1u) == 0) ++last;
      end = base + last;
    }
  }
  rows.count = end - rows.first;
  for (int offset = 16; offset > 0; offset /= 2) {
    const int begin = __shfl_xor_sync(kAllLanes, own.begin, offset);
    const int past_seen = __shfl_xor_sync(kAllLanes, own.end, offset);
    own.begin = begin < own.begin ? begin : own.begin;
    own.end = past_seen > own.end ? past_seen : own.end;
  }
  rows.seen = own;
  return rows;
}

/// The columns of a block: those of a row are adjacent.
struct ManyColumns {
  ManyRows rows;
  BlockHeads heads;

  __device__ int count() const { return rows.count * heads.count; }
  __device__ int row(int column) const { return rows.first + column / heads.count; }
  __device__ int head(int column) const { return heads.first + column % heads.count; }
};

/// The positions that the lane's two columns, that any and that all of the warp's columns see.
struct WarpSeen {
  Seen own[2];
  Seen any;
  Seen all;
};
/// By the warp.
__device__ inline WarpSeen seen_by_warp(const AttentionParams& a, const ManyColumns& columns,
                                        int warp) {
  WarpSeen seen;
  Seen any{INT32_MAX, 0};
  Seen all{0, INT32_MAX};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int column = warp * kColumns + thread_x() % kWarp / 4 + 8 * i;
    const bool there = column < columns.count();
    const Seen own = there ? seen_by(a, columns.row(column)) : Seen{0, 0};
    seen.own[i] = own;
    if (there) {
      any.begin = own.begin < any.begin ? own.begin : any.begin;
      any.end = own.end > any.end ? own.end : any.end;
      all.begin = own.begin > all.begin ? own.begin : all.begin;
      all.end = own.end < all.end ? own.end : all.end;
    }
  }
  for (int offset = 16; offset >= 4; offset /= 2) {
    const Seen other{__shfl_xor_sync(kAllLanes, any.begin, offset),
                     __shfl_xor_sync(kAllLanes, any.end, offset)};
    const Seen both{__shfl_xor_sync(kAllLanes, all.begin, offset),
                    __shfl_xor_sync(kAllLanes, all.end, offset)};
    any.begin = other.begin < any.begin ? other.begin : any.begin;
    any.end = other.end > any.end ? other.end : any.end;
    all.begin = both.begin > all.begin ? both.begin : all.begin;
    all.end = both.end < all.end ? both.end : all.end;
  }
  seen.any = any;
  seen.all = all;
  return seen;
}

/// By the warp: its queries as operand A in `words`, and the factors of their products. Columns
/// past the last are zero.
template <typename T>
__device__ void store_queries(const AttentionParams& a, const ManyColumns& columns, int warp,
                              uint32_t* words, float* factors) {
  const int head_dim = a.kv.k_dim;
  constexpr int kAtOnce = 4;  // queries that are loaded together
  for (int first = 0; first < kColumns; first += kAtOnce) {
    QueryRow own[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int column = warp * kColumns + first + i;
      own[i].load(column < columns.count() ? a.q.data + columns.row(column) * a.q.stride +
                                                 int64_t{columns.head(column)} * head_dim
                                           : nullptr,
                  head_dim);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const float unscale = Tiles<T>::store_query(own[i], head_dim, first + i, words);
      if (thread_x() % kWarp == 0) factors[first + i] = unscale * a.scale;
    }
  }
  __syncwarp();
}

/// The maximum and the sum of weights of a lane's two columns over one split.
struct SplitColumns {
  float maximum[2] = {-INFINITY, -INFINITY};
  float sum[2] = {};

  /// Turns the products of the chunk at position `start` into scores and raises the maxima. `keep`:
  /// the factors of what the split has so far; `reference`: what the scores are compared with.
  __device__ void raise_to(const AttentionParams& a, const ColumnPair& columns, int start,
                           bool all_seen, Sums (&scores)[kChunkTiles], float (&reference)[2],
                           float (&keep)[2]) {
    float most[2] = {-INFINITY, -INFINITY};
#pragma unroll
    for (int tile = 0; tile < kChunkTiles; ++tile) {
      score(a, columns, start + tile * kKvTile, all_seen, scores[tile]);
      raise(scores[tile], most);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float before = maximum[i];
      maximum[i] = fmaxf(before, column_max(most[i]));
      reference[i] = reference_of(maximum[i]);
      keep[i] = expf(before - reference[i]);
    }
  }
  /// `halves`: the lane's sums of the weights of 32 positions.
  __device__ void add(const float (&halves)[2][2], const float (&keep)[2]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      sum[i] = fmaf(sum[i], keep[i], column_sum(halves[0][i]) + column_sum(halves[1][i]));
    }
  }
};

/// Scales a split's values to its new maxima. Few chunks raise one.
template <int kDimTiles>
__device__ void keep_values(const float (&keep)[2], Sums (&part)[kDimTiles]) {
  if (__ballot_sync(kAllLanes, keep[0] != 1.0f || keep[1] != 1.0f) == 0) return;
#pragma unroll
  for (int dims = 0; dims < kDimTiles; ++dims) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      part[dims][0][i] *= keep[i / 2];
      part[dims][1][i] *= keep[i / 2];
    }
  }
}

/// The maximum and the sum of weights of a lane's two columns over all splits so far.
struct TotalColumns {
  float maximum[2] = {-INFINITY, -INFINITY};
  float sum[2] = {};

  /// Adds a split, and returns the factors of the values of column i.
  __device__ Merge add(const SplitColumns& split, int i) {
    const Merge with = merge(maximum[i], split.maximum[i]);
    maximum[i] = with.maximum;
    sum[i] = fmaf(split.sum[i], with.add, sum[i] * with.keep);
    return with;
  }
};

}  // namespace
}  // namespace hearth::kernels
