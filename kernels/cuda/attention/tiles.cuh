#pragma once
// Attention on the tensor cores over KV in tiles (kernels/cuda/attention/kv_tiles.cuh): what the
// kernels for few and for many rows have in common, and how they handle K, V and queries of f16 and
// bf16 (q8_0: kernels/cuda/attention/tiles_q8.cuh). A column is one head of one row; a warp
// multiplies 16 of them at a time. The result of a column, in either kernel:
//   1. scores: a query is the sum of two numbers of the KV's type, so nearly all of its bits count;
//      per step of kStepDims dimensions, ascending, the first terms are added, then the second
//   2. a split's positions are divided into chunks of 64, ascending. Per chunk: the maximum so far
//      of the split; weights exp(score - maximum), rounded (to f16, or to the sum of two bf16); the
//      sum of these rounded weights, per 32 positions in a fixed order
//   3. values: what the split has so far is scaled to the new maximum, then the chunk's tiles of 16
//      positions are added, ascending. Likewise the sum of the weights.
//   4. splits are merged as in kernels/cuda/attention/attention.cuh
// A position that a column does not see has weight 0 and changes no bit of its sums (provided V is
// finite, which a KV cache of f16 cannot guarantee), and a chunk without positions changes nothing,
// so a row's result depends neither on the other rows of its block nor on the kernel. Elements of V
// that no column of a block sees count as 0: they may hold anything.
//
// Queries and weights are operand A; K and V are operand B, for which a stored tile (in the order
// of operand A) is twice 8 positions, or dimensions: registers 0 and 2, and registers 1 and 3.

#include "kernels/cuda/attention/attention.cuh"
#include "kernels/cuda/attention/kv_tiles.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/terms.cuh"

namespace hearth::kernels {
namespace {

constexpr int kColumns = 16;
static_assert(kKvTile == kAttentionTile && kColumns == kKvTile);
constexpr int kChunk = 64;
constexpr int kChunkTiles = kChunk / kKvTile;
constexpr int kSplitChunks = kSplit / kChunk;
constexpr int kTileDims = kMaxTiledHeadDim / kKvTile;
/// Shared memory for a lane's part of a tile of V, as stored or as operand.
constexpr int kSlotBytes = 16;

/// A lane's part of 16 columns by 16 positions (or dimensions): [upper eight][element]. Elements 0
/// and 1 are those of column lane / 4, elements 2 and 3 those of column lane / 4 + 8.
using Sums = float[2][4];

/// A column's values in registers, spread over a warp; null: all are 0.
struct QueryRow {
  float value[kMaxTiledHeadDim / kWarp];

  __device__ void load(const float* q, int head_dim) {
    if (q == nullptr) head_dim = 0;
    const int lane = thread_x() % kWarp;
#pragma unroll
    for (int i = 0; i < kMaxTiledHeadDim / kWarp; ++i) {
      value[i] = lane < head_dim - i * kWarp ? q[lane + i * kWarp] : 0.0f;
    }
  }
  /// The largest magnitude, as the bits of a float.
  __device__ uint32_t largest() const {
    uint32_t most = 0;
#pragma unroll
    for (int i = 0; i < kMaxTiledHeadDim / kWarp; ++i) {
      const uint32_t bits = __float_as_uint(value[i]) & 0x7fffffffu;
      most = bits > most ? bits : most;
    }
    return warp_max(most);
  }
};

/// The heads of a block: `count` of one KV head's, from query head `first` on. `most`: that a block
/// may have.
struct BlockHeads {
  int kv_head;
  int first;
  int count;
};
__device__ inline BlockHeads block_heads(const AttentionParams& a, int most) {
  const int kv_head = block_y() / a.head_groups;
  const int before = block_y() % a.head_groups * most;  // heads of other blocks
  const int left = a.heads_per_kv - before;
  return {kv_head, kv_head * a.heads_per_kv + before, left < most ? left : most};
}

/// Where 16 positions of K, or the dimensions of V, begin.
struct TileRow {
  const std::byte* elements;
  const std::byte* scales;  ///< of q8_0
};

/// KV of f16 or bf16. Members of each type:
///   Number         16-bit type in which V and the weights are multiplied
///   kWeightTerms   numbers that a weight becomes
///   kStepDims      dimensions of K that are multiplied together
///   kConverts      V is stored in another form than that of an operand
///   query_words    shared memory of 16 queries as operand A, in 32-bit words
///   store_query    stores one of them, by one warp; returns the factor of its products
///   Query, Key     a lane's part of 16 columns, or of 16 positions, and kStepDims dimensions
///   add_dots       adds their products
///   key_row        16 positions of K in the pool
///   copy_key       copies a lane's Key into kKeySlots slots, which are a warp's slots apart
///   key_bytes      of 16 positions of K; for q8_0 also key_scale_bytes
///   value_row      the dimensions of 16 positions of V in the pool
///   copy_values    copies a lane's part of 16 positions and 16 dimensions of V into a slot
///   operand        the same as an operand, from a slot
template <typename T>
struct Tiles {
  using Number = T;
  static constexpr int kWeightTerms = std::is_same_v<T, Half> ? 1 : 2;
  static constexpr int kStepDims = kKvTile;
  static constexpr bool kConverts = false;
  static constexpr int kKeySlots = 1;

  __host__ __device__ static constexpr int query_words(int head_dim) { return kColumns * head_dim; }
  __host__ __device__ static constexpr int key_bytes(int head_dim) {
    return kKvTile * head_dim * static_cast<int>(sizeof(T));
  }
  __host__ __device__ static constexpr int key_scale_bytes(int) { return 0; }

  /// [16 dimensions][term: 2][lane][register: 4][2].
  static __device__ float store_query(const QueryRow& row, int head_dim, int column,
                                      uint32_t* words) {
    auto* operand = reinterpret_cast<uint16_t*>(words);
    float scale = 1.0f;
    float unscale = 1.0f;
    if constexpr (std::is_same_v<T, Half>) {
      const PowerOfTwo power = into_half(row.largest());
      scale = power.scale;
      unscale = power.inverse;
    }
    const int lane = thread_x() % kWarp;
    operand += lane / kKvTile * 2 * kKvTileElements + tile_element(column, lane % kKvTile);
#pragma unroll
    for (int i = 0; i < kMaxTiledHeadDim / kWarp; ++i) {
      if (lane >= head_dim - i * kWarp) break;
      float left = row.value[i] * scale;
#pragma unroll
      for (int term = 0; term < 2; ++term) {
        operand[(i * (kWarp / kKvTile) * 2 + term) * kKvTileElements] =
            bits_of(take_term<T>(&left));
      }
    }
    return unscale;
  }

  struct Query {
    uint4 term[2];

    __device__ void load(const uint32_t* words, int step) {
      const int lane = thread_x() % kWarp;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        term[i] = load_as<uint4>(words + ((step * 2 + i) * kWarp + lane) * 4);
      }
    }
  };
  struct Key {
    uint4 stored;

    __device__ void load(const TileRow& row, int, int step) {
      const int lane = thread_x() % kWarp;
      stored = load_as<uint4>(row.elements + (step * kWarp + lane) * 16);
    }
    __device__ void load_copied(const std::byte* slot, int, int) { stored = load_as<uint4>(slot); }
  };
  static __device__ void add_dots(Sums& c, const Query& query, const Key& key) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint4& q = query.term[i];
      const uint32_t operand[4] = {q.x, q.y, q.z, q.w};
      mma_k16<T>(c[0], operand, key.stored.x, key.stored.z);
      mma_k16<T>(c[1], operand, key.stored.y, key.stored.w);
    }
  }

  static __device__ TileRow key_row(const KvView& kv, int64_t block, int kv_head, int offset) {
    const T* from = keys<const T>(kv, block) + kv_tile(kv_head, offset, 0, kv.k_dim, kv.block_size);
    return {reinterpret_cast<const std::byte*>(from), nullptr};
  }
  static __device__ void copy_key(const TileRow& row, int, int step, int lane, std::byte* slot) {
    start_copy<16, Through::kSecondLevel>(slot, row.elements + (step * kWarp + lane) * 16);
  }
  static __device__ TileRow value_row(const KvView& kv, int64_t block, int kv_head, int offset) {
    const T* from =
        values<const T>(kv, block) + kv_tile(kv_head, offset, 0, kv.v_dim, kv.block_size);
    return {reinterpret_cast<const std::byte*>(from), nullptr};
  }
  static __device__ void copy_values(const TileRow& row, int dims, int lane, std::byte* slot) {
    start_copy<16, Through::kSecondLevel>(slot, row.elements + (dims * kWarp + lane) * 16);
  }
  static __device__ uint4 operand(const std::byte* slot) { return load_as<uint4>(slot); }
};

/// What a lane knows of its two columns.
struct ColumnPair {
  Seen seen[2];
  float factor[2];  ///< of their products
};

/// Products of 16 positions from `tile_begin` on become scores.
__device__ inline void score(const AttentionParams& a, const ColumnPair& columns, int tile_begin,
                             bool all_seen, Sums& c) {
#pragma unroll
  for (int upper = 0; upper < 2; ++upper) {
#pragma unroll
    for (int i = 0; i < 4; ++i) c[upper][i] *= columns.factor[i / 2];
  }
  if (a.soft_cap > 0) {
#pragma unroll
    for (int upper = 0; upper < 2; ++upper) {
#pragma unroll
      for (int i = 0; i < 4; ++i) c[upper][i] = a.soft_cap * tanhf(c[upper][i] / a.soft_cap);
    }
  }
  if (all_seen) return;
  const int first = tile_begin + thread_x() % 4 * 2;
#pragma unroll
  for (int upper = 0; upper < 2; ++upper) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int position = first + upper * 8 + i % 2;
      const Seen& seen = columns.seen[i / 2];
      if (position < seen.begin || position >= seen.end) c[upper][i] = -INFINITY;
    }
  }
}

/// The larger of `most` and the scores of each column, before the lanes of a column have met.
__device__ inline void raise(const Sums& c, float (&most)[2]) {
#pragma unroll
  for (int upper = 0; upper < 2; ++upper) {
#pragma unroll
    for (int i = 0; i < 4; ++i) most[i / 2] = fmaxf(most[i / 2], c[upper][i]);
  }
}
/// The four lanes of a column have the same result.
__device__ inline float column_max(float value) {
  value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, 1));
  return fmaxf(value, __shfl_xor_sync(kAllLanes, value, 2));
}
__device__ inline float column_sum(float value) {
  value += __shfl_xor_sync(kAllLanes, value, 1);
  return value + __shfl_xor_sync(kAllLanes, value, 2);
}

/// What scores are compared with: the maximum, if there is one.
__device__ inline float reference_of(float maximum) {
  return maximum == -INFINITY ? 0.0f : maximum;
}

/// Rounds both values, adds the rounded ones to `sum` and leaves the remainders.
template <typename T>
__device__ uint32_t take_pair(float (&left)[2], float* sum) {
#if !defined(HEARTH_CUDA_SHIM)
  if constexpr (std::is_same_v<T, Half>) {  // one instruction for both
    const __half2 pair = __floats2half2_rn(left[0], left[1]);
    *sum += __low2float(pair);
    *sum += __high2float(pair);
    return half2_bits(pair);
  }
#endif
  const T first = take_term<T>(&left[0]);
  const T second = take_term<T>(&left[1]);
  *sum += to_float(first);
  *sum += to_float(second);
  return bits_of(first) | static_cast<uint32_t>(bits_of(second)) << 16;
}

/// Scores of 16 positions become weights as operand A, and are added to each column's sum.
template <typename T>
__device__ void weigh(const Sums& c, const float (&reference)[2],
                      uint32_t (&operand)[Tiles<T>::kWeightTerms][4], float (&sum)[2]) {
#pragma unroll
  for (int upper = 0; upper < 2; ++upper) {
#pragma unroll
    for (int column = 0; column < 2; ++column) {
      float left[2];
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        left[e] = fast_exp(c[upper][2 * column + e] - reference[column]);
      }
#pragma unroll
      for (int term = 0; term < Tiles<T>::kWeightTerms; ++term) {
        operand[term][2 * upper + column] =
            take_pair<typename Tiles<T>::Number>(left, &sum[column]);
      }
    }
  }
}

/// One step of the sums of 16 dimensions.
template <typename T>
__device__ void add_values(const uint32_t (&weights)[Tiles<T>::kWeightTerms][4], const uint4& v,
                           Sums& part) {
#pragma unroll
  for (int term = 0; term < Tiles<T>::kWeightTerms; ++term) {
    mma_k16<typename Tiles<T>::Number>(part[0], weights[term], v.x, v.z);
    mma_k16<typename Tiles<T>::Number>(part[1], weights[term], v.y, v.w);
  }
}

/// Clears elements outside positions [begin, end) in a lane's part of a tile of V.
__device__ inline void clear_unseen(int tile_begin, int begin, int end, int lane, uint4& v) {
  if (begin <= tile_begin && end >= tile_begin + kKvTile) return;
  const auto mask = [&](int first) {
    return (first < begin || first >= end ? 0u : 0x0000ffffu) |
           (first + 1 < begin || first + 1 >= end ? 0u : 0xffff0000u);
  };
  const uint32_t lower = mask(tile_begin + lane % 4 * 2);
  const uint32_t upper = mask(tile_begin + lane % 4 * 2 + 8);
  v.x &= lower;
  v.y &= lower;
  v.z &= upper;
  v.w &= upper;
}

/// True if positions of the split are seen.
__device__ inline bool sees(const Seen& seen, int split) {
  return seen.begin < (split + 1) * kSplit && seen.end > split * kSplit;
}

}  // namespace
}  // namespace hearth::kernels
