#pragma once
// Attention on the tensor cores over q8_0 KV. Scores are as precise as f32: each dimension of a
// query becomes an integer of 23 bits, divided into three bytes, whose products with K's bytes are
// summed exactly over the 32 dimensions of a scale; these sums, times the scale, form one chain of
// fma per score. V becomes f16: integer times scale, rounded once. This never underflows, because
// all scales are multiples of f16's smallest number; from 65520 on the result is infinite.

#include "kernels/cuda/attention/tiles.cuh"

namespace hearth::kernels {
namespace {

/// Four signed bytes as f16, the first two in `low`: built as 1024 + 128 + integer, minus 1152.
__device__ inline void halves_of(uint32_t bytes, uint32_t* low, uint32_t* high) {
  const uint32_t biased = bytes ^ 0x80808080u;
  *low = half2_sub(__byte_perm(biased, 0x64646464u, 0x4140), 0x64806480u);
  *high = half2_sub(__byte_perm(biased, 0x64646464u, 0x4342), 0x64806480u);
}

template <>
struct Tiles<int8_t> {
  using Number = Half;
  static constexpr int kWeightTerms = 1;
  static constexpr int kTerms = 3;  ///< bytes of a query's integer

  __host__ __device__ static constexpr int query_words(int head_dim) {
    return kColumns * kv_scales(head_dim) * kKvScaleDims * kTerms / 4;
  }

  /// [8 columns][32 dimensions][term: 3][lane][register: 2][4]. A query that is not finite gives no
  /// finite score.
  static __device__ void store_query(const AttentionParams& a, int column, Column* columns,
                                     uint32_t* words) {
    auto* operand = reinterpret_cast<int8_t*>(words);
    const int lane = thread_x() % kWarp;
    const int head_dim = a.kv.k_dim;
    const int steps = kv_scales(head_dim);
    const float* q = query_of(a, columns[column]);
    const uint32_t most = largest(q, head_dim);
    const bool finite = most < 0x7f800000u;
    const PowerOfTwo power = into_power<21>(most);
    if (lane == 0) columns[column].unscale = finite ? power.inverse : NAN;
    const int of_lane = column % 8 * 4 + lane % 16 / 4;
    for (int step = 0; step < steps; ++step) {
      const int d = step * kKvScaleDims + lane;
      const bool there = q != nullptr && finite && d < head_dim;
      int left = there ? static_cast<int>(rintf(q[d] * power.scale)) : 0;
      const int tile = column / 8 * steps + step;
#pragma unroll
      for (int term = 0; term < kTerms; ++term) {  // lowest first
        const auto byte = static_cast<int8_t>(left);
        left = (left - byte) / 256;
        operand[((tile * kTerms + term) * kWarp + of_lane) * 8 + lane / 16 * 4 + lane % 4] = byte;
      }
    }
  }

  template <int kAhead>
  static __device__ void dots(const KvView& kv, int64_t block, int kv_head, int offset,
                              int column_tiles, const uint32_t* query,
                              float (&c)[kColumnTiles][4]) {
    const int lane = thread_x() % kWarp;
    const int steps = kv_scales(kv.k_dim);
    const auto* key = keys<const int8_t>(kv, block);
    const int8_t* tiles = key + kv_tile(kv_head, offset, 0, kv.k_dim, kv.block_size);
    const Half* scales =
        scales_of(kv, key, kv.k_dim) + tile_scales(kv_head, offset, 0, kv.k_dim, kv.block_size);
#pragma unroll kAhead
    for (int step = 0; step < steps; ++step) {
      uint32_t k[4] = {};
      if (kv.k_dim - step * kKvScaleDims >= kKvScaleDims) {
        const auto stored = load_as<uint4>(tiles + step * 2 * kKvTileElements + lane * 16);
        k[0] = stored.x;
        k[1] = stored.y;
        k[2] = stored.z;
        k[3] = stored.w;
      } else {
        const auto stored = load_as<uint2>(tiles + step * 2 * kKvTileElements + lane * 8);
        k[0] = stored.x;
        k[1] = stored.y;
      }
      const auto pair = load_as<uint32_t>(scales + step * kKvTile + lane / 4 * 2);
      const float d[2] = {to_float(Half{static_cast<uint16_t>(pair)}),
                          to_float(Half{static_cast<uint16_t>(pair >> 16)})};
#pragma unroll
      for (int tile = 0; tile < kColumnTiles; ++tile) {
        if (tile >= column_tiles) break;
        const uint32_t* q = query + (tile * steps + step) * kTerms * kWarp * 2;
        const auto multiply = [&](int term, int(&sum)[4]) {
          const auto bytes = load_as<uint2>(q + (term * kWarp + lane) * 2);
          mma_s8_k32(sum, k, bytes.x, bytes.y);
        };
        int upper[4] = {};  // |sum| of 32 products is below 2^19: an int holds two terms together
        multiply(2, upper);
#pragma unroll
        for (int i = 0; i < 4; ++i) upper[i] *= 256;
        multiply(1, upper);
        int lower[4] = {};
        multiply(0, lower);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float dot =
              fmaf(static_cast<float>(upper[i]), 256.0f, static_cast<float>(lower[i]));
          c[tile][i] = fmaf(dot, d[i / 2], c[tile][i]);
        }
      }
    }
  }

  struct Values {
    uint2 stored;
    uint2 scales;  ///< of positions 2 t, 2 t + 1, 2 t + 8 and 2 t + 9

    __device__ void load(const KvView& kv, int64_t block, int kv_head, int offset, int dim) {
      const int lane = thread_x() % kWarp;
      const auto* value = values<const int8_t>(kv, block);
      stored =
          load_as<uint2>(value + kv_tile(kv_head, offset, dim, kv.k_dim, kv.block_size) + lane * 8);
      scales =
          load_as<uint2>(scales_of(kv, value, kv.v_dim) +
                         tile_scales(kv_head, offset, dim, kv.k_dim, kv.block_size) + lane % 4 * 4);
    }
    __device__ void operand(uint32_t (&v)[4]) const {
      halves_of(stored.x, &v[0], &v[1]);
      halves_of(stored.y, &v[2], &v[3]);
      v[0] = half2_mul(v[0], scales.x);
      v[1] = half2_mul(v[1], scales.x);
      v[2] = half2_mul(v[2], scales.y);
      v[3] = half2_mul(v[3], scales.y);
    }
  };
};

}  // namespace
}  // namespace hearth::kernels
