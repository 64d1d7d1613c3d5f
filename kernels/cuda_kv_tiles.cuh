#pragma once
// KV of f16 and bf16 whose head_dim is a multiple of 16 lies in tiles of 16 positions and 16
// dimensions, each in the order of the tensor cores' operand A (cuda_mma.cuh): a warp reads a tile
// as 512 consecutive bytes. Inside a layer's K, or V, of one block:
//   [kv head][16 positions][16 dimensions][lane: 32][register: 4][2 elements]
// Element e of register r of lane 4 g + t is row g + 8 (r % 2), column 2 t + 8 (r / 2) + e of the
// tile. Rows are positions in K and dimensions in V.

#include "kernels/cuda_kv.cuh"

namespace hearth::kernels {

inline constexpr int kKvTile = 16;
inline constexpr int kKvTileElements = kKvTile * kKvTile;
/// Dimensions of a head, at most.
inline constexpr int kMaxTiledHeadDim = 256;

template <typename T>
inline constexpr bool kTileable = std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;

__host__ __device__ constexpr bool tiled_head(int head_dim) {
  return head_dim % kKvTile == 0 && head_dim <= kMaxTiledHeadDim;
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

}  // namespace hearth::kernels
