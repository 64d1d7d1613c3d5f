#pragma once
// How kernels/cuda/attention/tiles.cu handles K, V and queries of one KV type: f16 and bf16 here,
// q8_0 in kernels/cuda/attention/tiles_q8.cuh.

#include "kernels/cuda/attention/attention.cuh"
#include "kernels/cuda/attention/kv_tiles.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/terms.cuh"

namespace hearth::kernels {
namespace {

constexpr int kColumns = 16;
constexpr int kColumnTiles = kColumns / 8;
static_assert(kKvTile == kAttentionTile);

struct Column {
  int row;  ///< in the step; -1: unused column
  int head;
  Seen seen;
  float unscale;  ///< for its query
  float maximum;  ///< of its scores in this split
  float sum;      ///< of its weights
};

/// The query of a column; null for an unused one.
__device__ inline const float* query_of(const AttentionParams& a, const Column& c) {
  if (c.row < 0) return nullptr;
  return a.q.data + c.row * a.q.stride + int64_t{c.head} * a.kv.k_dim;
}
/// The largest magnitude of a warp's query, as the bits of a float.
__device__ inline uint32_t largest(const float* q, int head_dim) {
  uint32_t most = 0;
  for (int d = thread_x() % kWarp; q != nullptr && d < head_dim; d += kWarp) {
    const uint32_t bits = __float_as_uint(q[d]) & 0x7fffffffu;
    most = bits > most ? bits : most;
  }
  return warp_max(most);
}

/// KV of f16 or bf16. Members of each type:
///   Number         16-bit type in which V and the weights are multiplied
///   kWeightTerms   numbers that a weight becomes; together they fit in the place of its score
///   query_words    shared memory of all columns' queries as operand B, in 32-bit words
///   store_query    stores one of them, by one warp
///   dots           adds q . k for 16 positions and `column_tiles` times 8 columns; at most kAhead
///                  loads of K are in flight
///   Values         a lane's part of 16 positions and 16 dimensions of V: as stored, and as
///                  operand A
template <typename T>
struct Tiles {
  using Number = T;
  static constexpr int kWeightTerms = std::is_same_v<T, Half> ? 1 : 2;

  __host__ __device__ static constexpr int query_words(int head_dim) { return kColumns * head_dim; }

  /// [8 columns][16 dimensions][term: 2][lane][register: 2][2].
  static __device__ void store_query(const AttentionParams& a, int column, Column* columns,
                                     uint32_t* words) {
    auto* operand = reinterpret_cast<uint16_t*>(words);
    const int lane = thread_x() % kWarp;
    const int head_dim = a.kv.k_dim;
    const float* q = query_of(a, columns[column]);
    float scale = 1.0f;
    float unscale = 1.0f;
    if constexpr (std::is_same_v<T, Half>) {
      const PowerOfTwo power = into_half(largest(q, head_dim));
      scale = power.scale;
      unscale = power.inverse;
    }
    if (lane == 0) columns[column].unscale = unscale;
    for (int d = lane; d < head_dim; d += kWarp) {
      float left = q == nullptr ? 0.0f : q[d] * scale;
      const int tile = column / 8 * (head_dim / kKvTile) + d / kKvTile;
      const int of_lane = column % 8 * 4 + d % 8 / 2;
#pragma unroll
      for (int term = 0; term < 2; ++term) {
        operand[((tile * 2 + term) * kWarp + of_lane) * 4 + d % 16 / 8 * 2 + d % 2] =
            bits_of(take_term<T>(&left));
      }
    }
  }

  template <int kAhead>
  static __device__ void dots(const KvView& kv, int64_t block, int kv_head, int offset,
                              int column_tiles, const uint32_t* query,
                              float (&c)[kColumnTiles][4]) {
    const int lane = thread_x() % kWarp;
    const int steps = kv.k_dim / kKvTile;
    const T* tiles =
        keys<const T>(kv, block) + kv_tile(kv_head, offset, 0, kv.k_dim, kv.block_size);
#pragma unroll kAhead
    for (int step = 0; step < steps; ++step) {
      const auto k = load_as<uint4>(tiles + step * kKvTileElements + lane * 8);
      const uint32_t operand[4] = {k.x, k.y, k.z, k.w};
#pragma unroll
      for (int tile = 0; tile < kColumnTiles; ++tile) {
        if (tile >= column_tiles) break;
#pragma unroll
        for (int term = 0; term < 2; ++term) {
          const auto q =
              load_as<uint2>(query + (((tile * steps + step) * 2 + term) * kWarp + lane) * 2);
          mma_k16<T>(c[tile], operand, q.x, q.y);
        }
      }
    }
  }

  struct Values {
    uint4 stored;

    __device__ void load(const KvView& kv, int64_t block, int kv_head, int offset, int dim) {
      const int lane = thread_x() % kWarp;
      stored = load_as<uint4>(values<const T>(kv, block) +
                              kv_tile(kv_head, offset, dim, kv.k_dim, kv.block_size) + lane * 8);
    }
    __device__ void operand(uint32_t (&v)[4]) const {
      v[0] = stored.x;
      v[1] = stored.y;
      v[2] = stored.z;
      v[3] = stored.w;
    }
  };
};

}  // namespace
}  // namespace hearth::kernels
