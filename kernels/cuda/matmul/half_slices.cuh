#pragma once
// out = x w^T (+ residual) for f16 and bf16 weights and 16 to 32 rows, which were rounded before: a
// block of warps computes 32 outputs and 32 (16) rows, one warp per part. A warp loads its next
// weights and rows while it multiplies.

#include "kernels/cuda/matmul/half_rounded.cuh"

namespace hearth::kernels {

template <typename T>
inline constexpr int kHalfSliceTiles = 4 / kTerms<T>;
inline constexpr int kHalfSliceGroups = 2;
inline constexpr int kHalfSliceOutputs = kHalfSliceGroups * kHalfOutputs;

template <typename T>
__global__ void __launch_bounds__(kParts* kWarp)
    matmul_half_slices_kernel(PlainMatmul p, RoundedRows<T> x) {
  constexpr int kTiles = kHalfSliceTiles<T>;
  constexpr int kGroups = kHalfSliceGroups;
  constexpr int kUnits = RoundedRows<T>::kUnits;
  const auto lane = thread_x() % kWarp;
  const auto part = thread_x() / kWarp;
  const auto chunks = static_cast<int>(half_chunks(p.cols));
  const int begin = part_begin(chunks, part);
  const int end = part_begin(chunks, part + 1);
  // Groups past the last repeat the last one: they are computed and dropped.
  const int last_group = (p.outputs - 1) / kHalfOutputs;
  const int first_group = block_y() * kGroups;
  const uint4* weights = static_cast<const uint4*>(p.panels) +
                         (int64_t{first_group} * chunks + begin) * kChunkLoads + lane;
  const int group_step = first_group < last_group ? chunks * kChunkLoads : 0;
  ChunkWeights next[kGroups];
  const auto load_weights = [&] {
#pragma unroll
    for (int i = 0; i < kGroups; ++i) next[i].load(weights + i * group_step);
    weights += kChunkLoads;
  };
  let_next_launch_begin();
  if (begin < end) load_weights();
  wait_for_previous_launch();
  const RowSlice slice = slice_of(p.rows, block_x(), 8 * kTiles);
  if (slice.num_rows == 0) return;

  // Rows past the slice repeat the last one: they are computed and dropped.
  int32_t units[kTiles];  // where the lane's share of a row begins
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    const int n = 8 * tile + lane / 4;
    const int row = slice.first + (n < slice.num_rows ? n : slice.num_rows - 1);
    units[tile] = row * chunks * kUnits + lane % 4 * 2;
  }
  uint32_t next_x[kTiles][kTerms<T>][kHalfSteps][2];
  float next_unscale[kTiles][2];
  const auto load_rows = [&](int chunk) {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      next_unscale[tile][0] = next_unscale[tile][1] = 1.0f;
      if (8 * tile >= slice.num_rows) continue;
      load_operand<T>(x.operands + (units[tile] + chunk * kUnits), next_x[tile]);
      if constexpr (std::is_same_v<T, Half>) {  // scales of rows 2 t and 2 t + 1
        const auto both = load_as<uint2>(x.unscales + int64_t{chunk} * x.stride + slice.first +
                                         8 * tile + 2 * (lane % 4));
        next_unscale[tile][0] = __uint_as_float(both.x);
        next_unscale[tile][1] = __uint_as_float(both.y);
      }
    }
  };
  if (begin < end) load_rows(begin);

  float acc[kTiles][kGroups][4] = {};
#pragma unroll 2
  for (int chunk = begin; chunk < end; ++chunk) {
    ChunkWeights w[kGroups];
    uint32_t operand[kTiles][kTerms<T>][kHalfSteps][2];
    float unscale[kTiles][2];
#pragma unroll
    for (int i = 0; i < kGroups; ++i) w[i] = next[i];
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      unscale[tile][0] = next_unscale[tile][0];
      unscale[tile][1] = next_unscale[tile][1];
#pragma unroll
      for (int term = 0; term < kTerms<T>; ++term) {
#pragma unroll
        for (int s = 0; s < kHalfSteps; ++s) {
          operand[tile][term][s][0] = next_x[tile][term][s][0];
          operand[tile][term][s][1] = next_x[tile][term][s][1];
        }
      }
    }
    if (chunk + 1 < end) {
      load_weights();
      load_rows(chunk + 1);
    }
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      if (8 * tile >= slice.num_rows) break;
#pragma unroll
      for (int i = 0; i < kGroups; ++i) {
        float c[4] = {};
        multiply<T>(w[i], operand[tile], c);
        add_chunk(c, unscale[tile][0], unscale[tile][1], acc[tile][i]);
      }
    }
  }

  constexpr int kStride = kHalfSliceOutputs + 4;  // lanes that store sums use all banks
  __shared__ float sums[kParts][8 * kTiles][kStride];
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        sums[part][8 * tile + 2 * (lane % 4) + j % 2][i * kHalfOutputs + lane / 4 + j / 2 * 8] =
            acc[tile][i][j];
      }
    }
  }
  __syncthreads();
  const int64_t output = int64_t{block_y()} * kHalfSliceOutputs + lane;
  if (output >= p.outputs) return;
  for (int n = part; n < slice.num_rows; n += kParts) {
    float sum = 0;
#pragma unroll
    for (int k = 0; k < kParts; ++k) sum += sums[k][n][lane];
    store_output(p, slice.out(n), output, sum);
  }
}

}  // namespace hearth::kernels
