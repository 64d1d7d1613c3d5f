#pragma once
// If K and V have the same head_dim, a multiple of 16, then KV of f16, bf16 and q8_0 is stored in
// tiles of 16 positions and 16 dimensions, each in the order of the tensor cores' operand A
// (kernels/cuda/mma.cuh): a warp reads a tile as 512 consecutive bytes. Within a layer's K, or V,
// of one block:
//   [kv head][16 positions][16 dimensions][lane: 32][register: 4][2 elements]
// Element e of register r of lane 4 g + t is row g + 8 (r % 2), column 2 t + 8 (r / 2) + e of the
// tile. Rows are positions in K and dimensions in V.
//
// In q8_0 the integers of V are stored in this order, one byte each, and become f16 when loaded.
// Those of K are used unconverted as operands of byte products, whose tile has 32 dimensions; the
// last tile of a head may have 16, in registers 0 and 1:
//   [kv head][16 positions][32 dimensions][lane: 32][register: 4][4 elements]
// Element e of register r of lane 4 g + t is position g + 8 (r % 2), dimension 4 t + 16 (r / 2) +
// e. The scales follow the integers of all heads; those of a lane are adjacent:
//   K: [kv head][16 positions][32 dimensions][g: 8][positions g, g + 8]
//   V: [kv head][16 positions][32 dimensions][t: 4][positions 2 t, 2 t + 1, 2 t + 8, 2 t + 9]

#include "kernels/cuda/attention/kv.cuh"

namespace hearth::kernels {

inline constexpr int kKvTile = 16;
inline constexpr int kKvTileElements = kKvTile * kKvTile;
/// Largest head dimension in tiles.
inline constexpr int kMaxTiledHeadDim = 256;

template <typename T>
inline constexpr bool kTileable = std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;

__host__ __device__ constexpr bool tiled_heads(const KvView& kv) {
  return kv.k_dim == kv.v_dim && !kv.v_in_k && kv.k_dim % kKvTile == 0 &&
         kv.k_dim <= kMaxTiledHeadDim;
}

__host__ __device__ constexpr int tile_element(int row, int column) {
  const int lane = row % 8 * 4 + column % 8 / 2;
  return lane * 8 + (row / 8 + column / 8 * 2) * 2 + column % 2;
}
/// First element of the tile of (position, dimension).
__host__ __device__ constexpr int64_t kv_tile(int kv_head, int position, int d, int head_dim,
                                              int block_size) {
  const int64_t row = int64_t{kv_head} * (block_size / kKvTile) + position / kKvTile;
  return (row * (head_dim / kKvTile) + d / kKvTile) * kKvTileElements;
}
__host__ __device__ constexpr int64_t tiled_key(int kv_head, int position, int d, int head_dim,
                                                int block_size) {
  return kv_tile(kv_head, position, d, head_dim, block_size) +
         tile_element(position % kKvTile, d % kKvTile);
}
__host__ __device__ constexpr int64_t tiled_value(int kv_head, int position, int d, int head_dim,
                                                  int block_size) {
  return kv_tile(kv_head, position, d, head_dim, block_size) +
         tile_element(d % kKvTile, position % kKvTile);
}

/// For q8_0: the index of K's integer of (position, dimension); the first scale of a tile, in K and
/// in V; and a position's offset from that.
__host__ __device__ constexpr int64_t tiled_q8_key(int kv_head, int position, int d, int head_dim,
                                                   int block_size) {
  const int first = d / kKvScaleDims * kKvScaleDims;
  const int lane_bytes = head_dim - first < kKvScaleDims ? 8 : 16;
  const int lane = position % 8 * 4 + d % 16 / 4;
  return kv_tile(kv_head, position, first, head_dim, block_size) + lane * lane_bytes +
         (position % kKvTile / 8 + d % kKvScaleDims / 16 * 2) * 4 + d % 4;
}
__host__ __device__ constexpr int64_t tile_scales(int kv_head, int position, int d, int head_dim,
                                                  int block_size) {
  const int64_t row = int64_t{kv_head} * (block_size / kKvTile) + position / kKvTile;
  return (row * kv_scales(head_dim) + d / kKvScaleDims) * kKvTile;
}
__host__ __device__ constexpr int key_scale_in_tile(int position) {
  return position % 8 * 2 + position % kKvTile / 8;
}
__host__ __device__ constexpr int value_scale_in_tile(int position) {
  return position % 8 / 2 * 4 + position % kKvTile / 8 * 2 + position % 2;
}

}  // namespace hearth::kernels
