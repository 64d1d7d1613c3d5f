#pragma once
// out = x w^T (+ residual) for types with a scale per 32 weights (kernels/cuda/matmul/super.cuh has
// those with super-blocks) on the tensor cores: weights are operand A, sixteen outputs at a time;
// rows of x are operand B, eight at a time. The instruction sums integers, which is exact; the f32
// chain per output, over blocks and over kParts parts in ascending order, is the same in all
// kernels. So a row's value depends neither on the other rows nor on which kernel ran.
//   matmul_quant_kernel         a block of warps computes one group of 16 outputs and up to 8 rows,
//                               one warp per part: for few rows, when the whole device reads
//                               weights
//   matmul_quant_slices_kernel  the same for 32 outputs and up to 32 rows, with activations in
//                               shared memory (kernels/cuda/matmul/quant_slices.cuh)
//   matmul_quant_tiles_kernel   a block computes 128 outputs and 64 rows, one part after the other
//                               (kernels/cuda/matmul/quant_tiles.cuh)

#include "kernels/cuda/matmul/gate_tail.cuh"
#include "kernels/cuda/matmul/quant_row.cuh"
#include "kernels/cuda/matmul/quant_slices.cuh"
#include "kernels/cuda/matmul/quant_tiles.cuh"
#include "kernels/cuda/matmul/rows.cuh"
#include "kernels/cuda/matmul/unpack.cuh"
#include "kernels/cuda/mma.cuh"

namespace hearth::kernels {

/// The scales and sums of one block for two rows of x: columns 2 t and 2 t + 1 of a tile.
struct ColumnPair {
  ActivationBlock column[2];
};

/// Adds one block's products to the accumulators of 16 outputs and 8 rows.
template <DType kType>
__device__ void add_block(const ChunkShare<kType>& w, const uint32_t (&a)[4], int b, uint32_t b0,
                          uint32_t b1, const ColumnPair& x, float (&acc)[4]) {
  constexpr QuantForm kForm = quant_form(kType);
  if constexpr (kForm.subs == 2) {
    int low[4] = {}, high[4] = {};
    mma_s8_k16(low, a[0], a[1], b0);
    mma_s8_k16(high, a[2], a[3], b1);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const StoredScales& scales = w.scales[i / 2];
      const float sum = sum_of_halves<kType>(low[i], high[i], scale_of<kType>(scales, 2 * b),
                                             scale_of<kType>(scales, 2 * b + 1));
      acc[i] = fmaf(sum, x.column[i % 2].d, acc[i]);
    }
  } else {
    float sums[2];
    int c[4];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int sum = x.column[j].sum[0] + x.column[j].sum[1];
      sums[j] = static_cast<float>(sum);
      c[j] = c[2 + j] = -kForm.offset * sum;  // instead of subtracting the offset from every code
    }
    mma_s8_k32(c, a, b0, b1);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float scale = scale_of<kType>(w.scales[r], b);
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float& to = acc[2 * r + j];
        to = fmaf(static_cast<float>(c[2 * r + j]), x.column[j].d * scale, to);
        if constexpr (kForm.has_min) {
          to = fmaf(x.column[j].d * sums[j], min_of<kType>(w.scales[r], b), to);
        }
      }
    }
  }
}

template <DType kType>
__global__ void __launch_bounds__(kParts* kWarp) matmul_quant_kernel(QuantMatmul p) {
  constexpr int kChunkBytes = quant_form(kType).chunk_bytes();
  const auto lane = thread_x() % kWarp;
  const auto part = thread_x() / kWarp;
  const int begin = part_begin(p.chunks, part);
  const int end = part_begin(p.chunks, part + 1);
  const std::byte* group = p.weights + int64_t{blockIdx.y} * p.chunks * kChunkBytes;
  ChunkShare<kType> next;
  const auto load_first = [&] {
    if (begin < end) next.load(group + int64_t{begin} * kChunkBytes, lane);
  };
  const RowSlice slice = begin_with_weights(p, kFewRows, load_first);
  if (slice.num_rows == 0) return end_turn(p);
  const bool known = p.rows.slices == nullptr;
  if (!known) {
    group += slice.expert * p.expert_bytes;
    if (begin < end) next.load(group + int64_t{begin} * kChunkBytes, lane);
  }

  // Rows past the slice repeat the last one: they are computed and dropped.
  const auto row_of = [&](int n) {
    return int64_t{slice.in(n < slice.num_rows ? n : slice.num_rows - 1)};
  };
  const std::byte* x = p.x + row_of(lane / 4) * p.chunks * kChunkInputs + lane % 4 * 16;
  const ActivationBlock* blocks[2];
  for (int j = 0; j < 2; ++j) {
    blocks[j] = p.blocks + row_of(2 * (lane % 4) + j) * p.chunks * kChunkBlocks;
  }

  float acc[1][4] = {};
  for (int chunk = begin; chunk < end; ++chunk) {
    const ChunkShare<kType> w = next;
    if (chunk + 1 < end) next.load(group + int64_t{chunk + 1} * kChunkBytes, lane);
#pragma unroll
    for (int pair = 0; pair < kChunkBlocks / 2; ++pair) {
      const int first = chunk * kChunkBlocks + 2 * pair;
      if (first >= p.num_blocks) break;
      uint32_t a[2][4];
      w.codes(2 * pair, a[0]);
      w.codes(2 * pair + 1, a[1]);
      const uint4 b = load_as<uint4>(x + int64_t{first} * 32);
      const uint4 left = load_as<uint4>(blocks[0] + first);
      const uint4 right = load_as<uint4>(blocks[1] + first);
      add_block<kType>(w, a[0], 2 * pair, b.x, b.y,
                       {{activation_block(left.x, left.y), activation_block(right.x, right.y)}},
                       acc[0]);
      if (first + 1 >= p.num_blocks) continue;
      add_block<kType>(w, a[1], 2 * pair + 1, b.z, b.w,
                       {{activation_block(left.z, left.w), activation_block(right.z, right.w)}},
                       acc[0]);
    }
  }

  store_parts(p, slice, acc);
  if (p.gate.arrivals != nullptr) return activate_last(p, kFewRows);
  end_turn(p);
}

template <DType kType>
void run_quant(cudaStream_t stream, const QuantMatmul& params, int64_t slices, int width) {
  if (width == 1) return run_quant_row<kType>(stream, params, slices);
  if (width == kManyRows) return run_quant_slices<kType>(stream, params, slices);
  HEARTH_EXPECT(width == kFewRows, width);
  // Neighbouring blocks use other rows of the same weights, which are then still in the cache.
  const dim3 grid = grid2(slices, (params.outputs + kGroupOutputs - 1) / kGroupOutputs);
  HEARTH_LAUNCH(stream, matmul_quant_kernel<kType>, grid, kParts * kWarp, 0, params);
}

/// For the file that compiles a type's kernels.
#define HEARTH_QUANT_KERNELS(type)                                                      \
  template void run_quant<DType::type>(cudaStream_t, const QuantMatmul&, int64_t, int); \
  template void run_quant_tiles<DType::type>(cudaStream_t, const QuantMatmul&, int64_t)

}  // namespace hearth::kernels
