#pragma once
// out = x w^T (+ residual) for slices of 9 to 32 rows: a block of warps computes 32 outputs, one
// warp per part. Weights are read once per slice. x goes through shared memory, two blocks of
// inputs at a time, which each warp copies for itself while it multiplies the two before. So warps
// wait for each other only to add their parts.

#include "kernels/cuda/matmul/quant_share.cuh"
#include "kernels/cuda/matmul/quant_terms.cuh"

namespace hearth::kernels {

inline constexpr int kSliceOutputs = kShareOutputs;
static_assert(kManyRows == kWarp);  // a lane prepares the terms of one

/// A warp's shared memory: x and the terms of two blocks of inputs, and at the end its sums.
template <DType kType>
struct SliceMemory {
  static constexpr int kSumStride = kSliceOutputs + 4;  // lanes that store sums use all banks
  struct Staged {
    uint4 x[2][kManyRows * 4];  ///< of these two blocks and the next two, as operand B
    uint4 raw[kManyRows];       ///< ActivationBlocks of the next two
    RowTerms<kType> rows[2][kManyRows];
    ScaleTerms<kType> scales[2][kSliceOutputs];
  };
  union {
    Staged staged;
    float sums[kManyRows * kSumStride];
  };
};

template <DType kType>
__global__ void __launch_bounds__(kParts* kWarp, 2) matmul_quant_slices_kernel(QuantMatmul p) {
  constexpr int kTiles = kManyRows / 8;
  const auto lane = thread_x() % kWarp;
  const auto part = thread_x() / kWarp;
  const int begin = part_begin(p.chunks, part);
  const int end = part_begin(p.chunks, part + 1);
  WarpShare<kType> w;
  const auto load_first = [&](int expert) {
    w.begin(p, expert, block_y() * kShareGroups, begin);
    if (begin < end) w.load_first(lane);
  };
  const RowSlice slice = begin_with_weights(p, kManyRows, [&] { load_first(0); });
  if (slice.num_rows == 0) return;
  if (p.rows.slices != nullptr) load_first(slice.expert);

  HEARTH_DYN_SHARED(SliceMemory<kType>, memory);
  auto& staged = memory[part].staged;
  // Rows past the slice repeat the last one: they are computed and dropped.
  const auto row_of = [&](int n) { return slice.in(n < slice.num_rows ? n : slice.num_rows - 1); };
  const int num_tiles = (slice.num_rows + 7) / 8;
  // Where x of row `lane` begins, in units of 16 bytes.
  const int32_t own_row = row_of(lane) * (p.chunks * (kChunkInputs / 16));
  const auto stage = [&](int pair) {
    // A lane copies 16 bytes, of both blocks, of every eighth row: with 8 bytes there are fewer
    // bank conflicts, and it is slower by a tenth.
    const std::byte* from = p.x + int64_t{pair} * 64 + lane % 4 * 16;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      if (tile >= num_tiles) break;
      const int32_t row = __shfl_sync(kAllLanes, own_row, 8 * tile + lane / 4);
      start_copy<16>(&staged.x[pair % 2][tile * kWarp + lane], from + int64_t{row} * 16);
    }
    // A quarter of the bytes of x.
    const auto* blocks = reinterpret_cast<const std::byte*>(p.blocks) + int64_t{own_row} * 4;
    start_copy<16>(&staged.raw[lane], blocks + 16 * pair);
  };
  if (begin < end) stage(begin * (kChunkBlocks / 2));

  float acc[kTiles][kShareGroups][4] = {};
  for (int chunk = begin; chunk < end; ++chunk) {
    const bool more = chunk + 1 < end;
#pragma unroll
    for (int pair = 0; pair < kChunkBlocks / 2; ++pair) {
      const int first = chunk * kChunkBlocks + 2 * pair;
      if (first >= p.num_blocks) break;
      wait_for_all_copies();
      const uint4 raw = staged.raw[lane];
      staged.rows[0][lane] = row_terms<kType>(raw.x, raw.y);
      staged.rows[1][lane] = row_terms<kType>(raw.z, raw.w);
      w.store_scales(pair, more, staged.scales, lane);
      __syncwarp();
      // None is under way when the warp leaves the loop.
      if (pair < 3 ? first + 2 < p.num_blocks : more) stage(first / 2 + 1);

#pragma unroll
      for (int b = 0; b < 2; ++b) {
        if (first + b >= p.num_blocks) break;
        BlockOperand<kType> operand[kShareGroups];
        w.take(pair, b, more, staged.scales, lane, operand);
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
          if (tile >= num_tiles) break;
          const uint4 both = staged.x[pair % 2][tile * kWarp + lane];
          const RowPair<kType> x(&staged.rows[b][8 * tile + 2 * (lane % 4)]);
#pragma unroll
          for (int i = 0; i < kShareGroups; ++i) {
            add_products<kType>(operand[i], b == 0 ? both.x : both.z, b == 0 ? both.y : both.w, x,
                                acc[tile][i]);
          }
        }
      }
      w.run_ahead(pair, more, lane);
      __syncwarp();  // what was staged has been read
    }
    w.next_chunk();
  }

  constexpr int kStride = SliceMemory<kType>::kSumStride;
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < kShareGroups; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int n = 8 * tile + 2 * (lane % 4) + j % 2;
        memory[part].sums[n * kStride + i * kGroupOutputs + lane / 4 + j / 2 * 8] = acc[tile][i][j];
      }
    }
  }
  __syncthreads();
  const int64_t output = int64_t{block_y()} * kSliceOutputs + lane;
  if (output >= p.outputs) return;
  for (int n = part; n < slice.num_rows; n += kParts) {
    float sum = 0;
#pragma unroll
    for (int k = 0; k < kParts; ++k) sum += memory[k].sums[n * kStride + lane];
    store_output(p, slice.out(n), output, sum);
  }
}

template <DType kType>
void run_quant_slices(cudaStream_t stream, const QuantMatmul& params, int64_t slices) {
  constexpr size_t kSharedBytes = kParts * sizeof(SliceMemory<kType>);
  static_assert(kSharedBytes <= 48 * 1024);  // every device has it
  // Neighbouring blocks use other rows of the same weights, which are then still in the cache.
  const dim3 grid = grid2(slices, (params.outputs + kSliceOutputs - 1) / kSliceOutputs);
  HEARTH_LAUNCH_AFTER(stream, matmul_quant_slices_kernel<kType>, grid, kParts * kWarp, kSharedBytes,
                      params);
}

}  // namespace hearth::kernels
