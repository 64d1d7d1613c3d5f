#pragma once
// out = x w^T (+ residual) for f16 and bf16 weights and many rows. A launch rounds x to the
// weights' type once, in the order of operand B. Then a block of eight warps, four across the
// outputs times two across the rows, computes 128 outputs and 128 (64) rows: a chunk of x is copied
// to shared memory while the one before is multiplied.

#include "kernels/cuda/matmul/half_rounded.cuh"

namespace hearth::kernels {

inline constexpr int kWarpGroups = 2;  // groups of 16 outputs per warp
inline constexpr int kBlockGroups = 4 * kWarpGroups;
template <typename T>
inline constexpr int kWarpTiles = 8 / kTerms<T>;  // tiles of 8 rows per warp
template <typename T>
inline constexpr int kBlockRows = 2 * 8 * kWarpTiles<T>;

template <typename T>
struct StagedRows {
  static constexpr int kUnits = RoundedRows<T>::kUnits;
  uint4 operand[kBlockRows<T>][kUnits + 1];  ///< neighbouring rows are in different banks
  float unscale[kBlockRows<T>];
};

template <typename T>
__global__ void __launch_bounds__(kParts* kWarp)
    matmul_half_tiles_kernel(PlainMatmul p, RoundedRows<T> x) {
  after_previous_launch();
  constexpr bool kScaled = std::is_same_v<T, Half>;
  constexpr int kTiles = kWarpTiles<T>;
  constexpr int kThreads = kParts * kWarp;
  constexpr int kUnits = RoundedRows<T>::kUnits;
  const RowSlice slice = slice_of(p.rows, block_x(), kBlockRows<T>);
  if (slice.num_rows == 0) return;
  const auto thread = thread_x();
  const int lane = thread % kWarp;
  const int warp = thread / kWarp;
  const auto chunks = static_cast<int>(half_chunks(p.cols));
  const int first_group = block_y() * kBlockGroups + warp % 4 * kWarpGroups;
  const int first_row = warp / 4 * 8 * kTiles;
  // Groups past the last repeat the last one, because their warps must reach the barriers.
  const int last_group = (p.outputs - 1) / kHalfOutputs;
  const auto* weights =
      static_cast<const uint4*>(p.panels) +
      int64_t{first_group < last_group ? first_group : last_group} * chunks * kChunkLoads + lane;
  const int group_step = first_group < last_group ? chunks * kChunkLoads : 0;

  __shared__ __align__(16) StagedRows<T> staged[2];
  // Rows past the slice repeat the last one: they are computed and dropped. All rows together have
  // fewer than 2^31 units, because they fit in the scratch.
  const int unit = thread % kUnits;
  constexpr int kCopyStep = kThreads / kUnits;  // rows
  const int first_copy = (slice.first + thread / kUnits) * chunks;
  const int last_copy = (slice.first + slice.num_rows - 1) * chunks;
  const auto stage = [&](int chunk) {
    StagedRows<T>& to = staged[chunk % 2];
#pragma unroll
    for (int i = 0; i < kBlockRows<T> / kCopyStep; ++i) {
      const int row = first_copy + i * kCopyStep * chunks;
      start_copy<16>(&to.operand[i * kCopyStep + thread / kUnits][unit],
                     x.operands + ((row < last_copy ? row : last_copy) + chunk) * kUnits + unit);
    }
    if (kScaled && thread < slice.num_rows) {
      start_copy<4>(&to.unscale[thread],
                    x.unscales + int64_t{chunk} * x.stride + slice.first + thread);
    }
  };
  stage(0);
  ChunkWeights next[kWarpGroups];
#pragma unroll
  for (int i = 0; i < kWarpGroups; ++i) next[i].load(weights + i * group_step);

  const int per_part = chunks_per_part(chunks);
  int part_end = per_part;
  float total[kTiles][kWarpGroups][4] = {};
  float acc[kTiles][kWarpGroups][4] = {};
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const bool more = chunk + 1 < chunks;
    ChunkWeights w[kWarpGroups];
#pragma unroll
    for (int i = 0; i < kWarpGroups; ++i) {
      w[i] = next[i];
      if (more) next[i].load(weights + kChunkLoads + i * group_step);
    }
    weights += kChunkLoads;
    wait_for_all_copies();
    // This chunk is staged, and the other half of the memory is free.
    __syncthreads();
    if (more) stage(chunk + 1);
    const StagedRows<T>& rows = staged[chunk % 2];
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const int n = first_row + 8 * tile;
      if (tile % 2 == 0 && n >= slice.num_rows) break;
      uint32_t operand[kTerms<T>][kHalfSteps][2];
      load_operand<T>(&rows.operand[n + lane / 4][lane % 4 * 2], operand);
      float unscale[2] = {1.0f, 1.0f};
      if constexpr (kScaled) {
        const auto both = load_as<uint2>(&rows.unscale[n + 2 * (lane % 4)]);
        unscale[0] = __uint_as_float(both.x);
        unscale[1] = __uint_as_float(both.y);
      }
#pragma unroll
      for (int i = 0; i < kWarpGroups; ++i) {
        float c[4] = {};
        multiply<T>(w[i], operand, c);
        add_chunk(c, unscale[0], unscale[1], acc[tile][i]);
      }
    }
    if (chunk + 1 != part_end && more) continue;
    part_end += per_part;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < kWarpGroups; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          total[tile][i][j] += acc[tile][i][j];
          acc[tile][i][j] = 0;
        }
      }
    }
  }
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < kWarpGroups; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int n = first_row + 8 * tile + 2 * (lane % 4) + j % 2;
        const int output = (first_group + i) * kHalfOutputs + lane / 4 + j / 2 * 8;
        if (n < slice.num_rows && output < p.outputs) {
          store_output(p, p.rows.first_row + slice.first + n, output, total[tile][i][j]);
        }
      }
    }
  }
}

}  // namespace hearth::kernels
