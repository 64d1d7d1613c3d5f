#pragma once
// Attention on the tensor cores over q8_0 KV. Scores are as precise as f32: each dimension of a
// rotated query becomes an integer of 23 bits, divided into three bytes, whose products with K's
// bytes are summed exactly over the 32 dimensions of a scale; these sums, times the scale, form one
// chain of fma per score. V becomes f16: integer times scale, rounded once. This never underflows,
// because all scales are multiples of f16's smallest number; from 65520 on the result is infinite.

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
  static constexpr int kStepDims = kKvScaleDims;
  static constexpr bool kConverts = true;
  static constexpr int kKeySlots = 2;  ///< integers; scales
  static constexpr int kTerms = 3;     ///< bytes of a query's integer

  __host__ __device__ static constexpr int query_words(int head_dim) {
    return kColumns * kv_scales(head_dim) * kKvScaleDims * kTerms / 4;
  }
  __host__ __device__ static constexpr int key_bytes(int head_dim) { return kKvTile * head_dim; }
  __host__ __device__ static constexpr int key_scale_bytes(int head_dim) {
    return kv_scales(head_dim) * kKvTile * static_cast<int>(sizeof(Half));
  }

  /// [32 dimensions][term: 3][lane][register: 4][4]. A query that is not finite gives no finite
  /// score.
  static __device__ float store_query(QueryRow row, int head_dim, int column, uint32_t* words) {
#pragma unroll
    for (int step = 0; step < kMaxTiledHeadDim / kKvScaleDims; ++step) {
      if (!whole_step(head_dim, step)) break;
      row.value[step] = rotated_lane(row.value[step], kRotatedQuery);
    }
    auto* operand = reinterpret_cast<int8_t*>(words);
    const int lane = thread_x() % kWarp;
    const int steps = kv_scales(head_dim);
    const uint32_t most = row.largest();
    const bool finite = most < 0x7f800000u;
    const PowerOfTwo power = into_power<21>(most);
    const int of_lane = column % 8 * 4 + lane % 16 / 4;
#pragma unroll
    for (int step = 0; step < kMaxTiledHeadDim / kKvScaleDims; ++step) {
      if (step >= steps) break;
      int left = finite ? static_cast<int>(rintf(row.value[step] * power.scale)) : 0;
#pragma unroll
      for (int term = 0; term < kTerms; ++term) {  // lowest first
        const auto byte = static_cast<int8_t>(left);
        left = (left - byte) / 256;
        operand[((step * kTerms + term) * kWarp + of_lane) * 16 + (column / 8 + lane / 16 * 2) * 4 +
                lane % 4] = byte;
      }
    }
    return finite ? power.inverse : NAN;
  }

  struct Query {
    uint4 term[kTerms];

    __device__ void load(const uint32_t* words, int step) {
      const int lane = thread_x() % kWarp;
#pragma unroll
      for (int i = 0; i < kTerms; ++i) {
        term[i] = load_as<uint4>(words + ((step * kTerms + i) * kWarp + lane) * 4);
      }
    }
  };
  /// False for the last 16 dimensions of a head.
  static __device__ bool whole_step(int head_dim, int step) {
    return head_dim - step * kKvScaleDims >= kKvScaleDims;
  }
  struct Key {
    uint4 stored;
    uint2 scales;  ///< of positions 2 t and 2 t + 8, 2 t + 1 and 2 t + 9

    __device__ void load(const TileRow& row, int head_dim, int step) {
      const int lane = thread_x() % kWarp;
      const std::byte* from = row.elements + step * 2 * kKvTileElements;
      if (whole_step(head_dim, step)) {
        stored = load_as<uint4>(from + lane * 16);
      } else {
        const auto half = load_as<uint2>(from + lane * 8);
        stored = {half.x, half.y, 0, 0};
      }
      scales = load_as<uint2>(row.scales + step * kKvTile * sizeof(Half) + lane % 4 * 8);
    }
    __device__ void load_copied(const std::byte* slot, int head_dim, int step) {
      stored = load_as<uint4>(slot);
      if (!whole_step(head_dim, step)) stored.z = stored.w = 0;
      scales = load_as<uint2>(slot + kWarp * kSlotBytes);
    }
  };
  static __device__ void add_dots(Sums& c, const Query& query, const Key& key) {
#pragma unroll
    for (int upper = 0; upper < 2; ++upper) {
      const uint32_t low_dims = upper == 0 ? key.stored.x : key.stored.y;
      const uint32_t high_dims = upper == 0 ? key.stored.z : key.stored.w;
      const auto multiply = [&](const uint4& q, int(&sum)[4]) {
        const uint32_t operand[4] = {q.x, q.y, q.z, q.w};
        mma_s8_k32(sum, operand, low_dims, high_dims);
      };
      int most[4] = {};  // |sum| of 32 products is below 2^19: an int holds two terms together
      multiply(query.term[2], most);
#pragma unroll
      for (int i = 0; i < 4; ++i) most[i] *= 256;
      multiply(query.term[1], most);
      int least[4] = {};
      multiply(query.term[0], least);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const uint32_t pair = i % 2 == 0 ? key.scales.x : key.scales.y;
        const float scale = to_float(Half{static_cast<uint16_t>(upper == 0 ? pair : pair >> 16)});
        const float dot = fmaf(static_cast<float>(most[i]), 256.0f, static_cast<float>(least[i]));
        c[upper][i] = fmaf(dot, scale, c[upper][i]);
      }
    }
  }

  static __device__ TileRow key_row(const KvView& kv, int64_t block, int kv_head, int offset) {
    const auto* key = keys<const int8_t>(kv, block);
    const int8_t* from = key + kv_tile(kv_head, offset, 0, kv.k_dim, kv.block_size);
    const Half* scales =
        scales_of(kv, key, kv.k_dim) + tile_scales(kv_head, offset, 0, kv.k_dim, kv.block_size);
    return {reinterpret_cast<const std::byte*>(from), reinterpret_cast<const std::byte*>(scales)};
  }
  static __device__ void copy_key(const TileRow& row, int head_dim, int step, int lane,
                                  std::byte* slot) {
    const std::byte* from = row.elements + step * 2 * kKvTileElements;
    if (whole_step(head_dim, step)) {
      start_copy<16, Through::kSecondLevel>(slot, from + lane * 16);
    } else {
      start_copy<8>(slot, from + lane * 8);
    }
    start_copy<8>(slot + kWarp * kSlotBytes,
                  row.scales + step * kKvTile * sizeof(Half) + lane % 4 * 8);
  }
  static __device__ TileRow value_row(const KvView& kv, int64_t block, int kv_head, int offset) {
    const auto* value = values<const int8_t>(kv, block);
    const int8_t* from = value + kv_tile(kv_head, offset, 0, kv.v_dim, kv.block_size);
    const Half* scales =
        scales_of(kv, value, kv.v_dim) + tile_scales(kv_head, offset, 0, kv.v_dim, kv.block_size);
    return {reinterpret_cast<const std::byte*>(from), reinterpret_cast<const std::byte*>(scales)};
  }
  /// Integers, then the scales of positions 2 t, 2 t + 1, 2 t + 8 and 2 t + 9.
  static __device__ void copy_values(const TileRow& row, int dims, int lane, std::byte* slot) {
    start_copy<8>(slot, row.elements + (dims * kWarp + lane) * 8);
    start_copy<8>(slot + 8, row.scales + (dims / 2 * kKvTile + lane % 4 * 4) * sizeof(Half));
  }
  static __device__ uint4 operand(const std::byte* slot) {
    const auto stored = load_as<uint4>(slot);
    uint4 v;
    halves_of(stored.x, &v.x, &v.y);
    halves_of(stored.y, &v.z, &v.w);
    v.x = half2_mul(v.x, stored.z);
    v.y = half2_mul(v.y, stored.z);
    v.z = half2_mul(v.z, stored.w);
    v.w = half2_mul(v.w, stored.w);
    return v;
  }
};

}  // namespace
}  // namespace hearth::kernels
