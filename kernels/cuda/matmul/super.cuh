#pragma once
// out = x w^T (+ residual) for types with super-blocks, on the tensor cores; the sums and their
// order are those of super_terms.cuh in all kernels, so a row's value depends neither on the other
// rows nor on which kernel ran.
//   matmul_super_row_kernel     one row
//   matmul_super_kernel         a block of warps computes one group of 16 outputs and up to 8 rows,
//                               one warp per part: when the whole device reads weights
//   matmul_super_slices_kernel  the same for 32 outputs and up to 32 rows, with x in shared memory
//   matmul_super_tiles_kernel   a block computes 128 outputs and 128 rows with wgmma
//   matmul_super_mma_tiles_kernel  128 outputs and 64 rows without it

#include "kernels/cuda/matmul/gate_tail.cuh"
#include "kernels/cuda/matmul/super_mma_tiles.cuh"
#include "kernels/cuda/matmul/super_row.cuh"
#include "kernels/cuda/matmul/super_slices.cuh"
#include "kernels/cuda/matmul/super_terms.cuh"
#include "kernels/cuda/matmul/super_tiles.cuh"

namespace hearth::kernels {

/// Blocks per multiprocessor; 0: as many as the compiler chooses. It chooses three, for which
/// registers are short where codes with an upper bit in a plane of its own are looked up.
template <DType kType>
inline constexpr int kFewBlocks = quant_form(kType).looks_up_ones() ? 2 : 0;

template <DType kType>
__global__ void __launch_bounds__(kParts* kWarp, kFewBlocks<kType>)
    matmul_super_kernel(QuantMatmul p) {
  constexpr QuantForm kForm = quant_form(kType);
  constexpr int kChunkBytes = kForm.chunk_bytes();
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
  if (p.rows.slices != nullptr) {
    group += slice.expert * p.expert_bytes;
    load_first();
  }

  // Rows past the slice repeat the last one: they are computed and dropped.
  const int n = lane / 4;
  const int64_t row = slice.in(n < slice.num_rows ? n : slice.num_rows - 1);
  const std::byte* x = p.x + row * p.chunks * kChunkInputs + lane % 4 * 16;
  const auto* sums =
      reinterpret_cast<const std::byte*>(p.blocks + row * p.chunks * kChunkBlocks + lane % 4 * 2);

  float acc[1][4] = {};
  for (int chunk = begin; chunk < end; ++chunk) {
    const ChunkShare<kType> w = next;
    if (chunk + 1 < end) next.load(group + int64_t{chunk + 1} * kChunkBytes, lane);
    const auto own = load_as<uint4>(sums + chunk * (kChunkBlocks * sizeof(SuperActivation)));
    int total[4] = {};
#pragma unroll
    for (int pair = 0; pair < kChunkBlocks / 2; ++pair) {
      const uint4 both = load_as<uint4>(x + chunk * kChunkInputs + pair * 64);
#pragma unroll
      for (int b = 2 * pair; b < 2 * pair + 2; ++b) {
        uint32_t a[4];
        w.codes(b, a);
        const uint32_t b0 = b % 2 == 0 ? both.x : both.z;
        const uint32_t b1 = b % 2 == 0 ? both.y : both.w;
        const auto scale = [&](int r, int sub) {
          return scale_code<kType>(w.scales[r], kForm.subs * b + sub);
        };
        add_products<kType>(a, b0, b1, scale, total);
      }
    }
    int weighed[4] = {};
    if constexpr (kWeighsSums<kType>) {
      const uint32_t weights[2] = {sum_weights<kType>(w.scales[0].first, lane % 4),
                                   sum_weights<kType>(w.scales[1].first, lane % 4)};
      weigh_sums(weights, sum_bytes(own.y, own.w), weighed);
    }
    const float d = __uint_as_float(own.x);  // of row lane / 4
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const float dx = __shfl_sync(kAllLanes, d, (lane % 4 * 2 + j) * 4);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float& to = acc[0][2 * r + j];
        to = add_super<kType>(to, total[2 * r + j], weighed[2 * r + j], dx,
                              super_scale<kType>(w.scales[r]), super_min(w.scales[r]));
      }
    }
  }
  store_parts(p, slice, acc);
  if (p.gate.arrivals != nullptr) return activate_last(p, kFewRows);
  end_turn(p);
}

/// `slices` slices of `width` rows.
template <DType kType>
void run_super(cudaStream_t stream, const QuantMatmul& params, int64_t slices, int width) {
  // Neighbouring blocks use other rows of the same weights, which are then still in the cache.
  const dim3 grid = grid2(slices, (params.outputs + kGroupOutputs - 1) / kGroupOutputs);
  if (width == kManyRows) return run_super_slices<kType>(stream, params, slices);
  if (width == 1) {
    HEARTH_LAUNCH(stream, matmul_super_row_kernel<kType>, grid, kParts * kWarp, 0, params);
  } else {
    HEARTH_EXPECT(width == kFewRows, width);
    HEARTH_LAUNCH(stream, matmul_super_kernel<kType>, grid, kParts * kWarp, 0, params);
  }
}

/// For the file that compiles a type's kernels.
#define HEARTH_SUPER_KERNELS(type)                                                       \
  template void run_super<DType::type>(cudaStream_t, const QuantMatmul&, int64_t, int);  \
  template void run_super_tiles<DType::type>(cudaStream_t, const QuantMatmul&, int64_t); \
  template void run_super_mma_tiles<DType::type>(cudaStream_t, const QuantMatmul&, int64_t)

}  // namespace hearth::kernels
