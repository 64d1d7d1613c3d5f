#pragma once
// out = x w^T (+ residual) for types with super-blocks with wgmma, where the tiles of
// super_tiles.cuh would leave multiprocessors idle: few rows, or few outputs. A block of four
// warpgroups computes 64 outputs and 32 rows, each warpgroup two of the eight parts. Weights and x
// are copied to shared memory one chunk ahead.

#include "kernels/cuda/device_limits.cuh"
#include "kernels/cuda/matmul/super_products.cuh"

namespace hearth::kernels {

inline constexpr int kPartRows = 32;
inline constexpr int kPartWarpgroups = 4;
inline constexpr int kPartThreads = kPartWarpgroups * kWarpgroup;
inline constexpr int kPartOutputs = 4 * kGroupOutputs;
static_assert(kParts == 2 * kPartWarpgroups);

template <DType kType>
struct SuperPartMemory {
  static constexpr QuantForm kForm = quant_form(kType);
  static constexpr int kStride = kPartOutputs + 4;  // lanes that store sums use all banks
  struct alignas(128) Stage {
    std::byte x[kPartRows * kChunkInputs];
    std::byte sums[kHasMins<kType> ? kPartRows * kSumUnits * 16 : 16];
    TileTerm rows[kPartRows];
    std::byte weights[4][kForm.chunk_bytes()];
  };
  union {
    Stage stage[kPartWarpgroups][2];  ///< of this chunk and the next
    float parts[kParts][kPartRows * kStride];
  };
};

template <DType kType>
__global__ void __launch_bounds__(kPartThreads, 1) matmul_super_parts_kernel(QuantMatmul p) {
#if defined(HEARTH_HAS_WGMMA)
  after_previous_launch();
  constexpr QuantForm kForm = quant_form(kType);
  const RowSlice slice = slice_of(p.rows, block_x(), kPartRows);
  if (slice.num_rows == 0) return;
  const int lane = thread_x() % kWarp;
  const int warp = thread_x() / kWarp % 4;
  const int warpgroup = thread_x() / kWarpgroup;
  // Groups past the last repeat it: they are computed and dropped.
  const int last_group = (p.outputs - 1) / kGroupOutputs;
  const int group = block_y() * 4 + warp;
  const std::byte* weights =
      p.weights + int64_t{group < last_group ? group : last_group} * p.chunks * kForm.chunk_bytes();

  HEARTH_DYN_SHARED(SuperPartMemory<kType>, memory);
  const int per_part = chunks_per_part(p.chunks);
  // The chunk of a step: of the first part, then of the second. -1: the part has fewer.
  const auto chunk_of = [&](int step) {
    const int part = 2 * warpgroup + step / per_part;
    const int chunk = part_begin(p.chunks, part) + step % per_part;
    return chunk < part_begin(p.chunks, part + 1) ? chunk : -1;
  };
  // Rows past the slice are of earlier steps, or zero: they are computed and dropped.
  const auto stage = [&](int step) {
    const int chunk = chunk_of(step);
    if (chunk < 0) return;
    auto& to = memory->stage[warpgroup][step % 2];
    const std::byte* own = weights + int64_t{chunk} * kForm.chunk_bytes();
    for (int at = lane * 16; at < kForm.chunk_bytes(); at += kWarp * 16) {
      start_copy<16, Through::kSecondLevel>(to.weights[warp] + at, own + at);
    }
    stage_rows<kHasMins<kType>, kPartRows, kWarpgroup>(
        p, slice.first, chunk, thread_x() % kWarpgroup, to.x, to.sums, to.rows);
  };
  stage(0);

  SuperProducts<kType, kPartRows> products;
  products.clear();
  float first_part[kPartRows / 2];
#pragma unroll 1
  for (int step = 0; step < 2 * per_part; ++step) {
    wait_for_all_copies();
    shared_writes_before_products();
    arrive_and_wait(1 + warpgroup,
                    kWarpgroup);  // the chunk is staged, and the one before has been read
    if (step + 1 < 2 * per_part) stage(step + 1);
    if (step == per_part) {
#pragma unroll
      for (int i = 0; i < kPartRows / 2; ++i) first_part[i] = products.acc[i];
      products.clear();
    }
    if (chunk_of(step) < 0) continue;
    const auto& staged = memory->stage[warpgroup][step % 2];
    const std::byte* own = staged.weights[warp];
    products.multiply(own, own + kForm.planes_at(),
                      operand_b(staged.x, kUnitBytes, kOperandUnits * kUnitBytes), [] {});
    products.finish(own, staged.rows, operand_b(staged.sums, kUnitBytes, kSumUnits * kUnitBytes));
  }

  __syncthreads();  // all that was staged has been read
  constexpr int kStride = SuperPartMemory<kType>::kStride;
#pragma unroll
  for (int i = 0; i < kPartRows / 2; ++i) {
    const int n = 8 * (i / 4) + 2 * (lane % 4) + i % 2;
    const int at = n * kStride + warp * kGroupOutputs + lane / 4 + i % 4 / 2 * 8;
    memory->parts[2 * warpgroup][at] = first_part[i];
    memory->parts[2 * warpgroup + 1][at] = products.acc[i];
  }
  __syncthreads();
  const int output = thread_x() % kPartOutputs;
  if (block_y() * kPartOutputs + output >= p.outputs) return;
  for (int n = thread_x() / kPartOutputs; n < slice.num_rows; n += kPartThreads / kPartOutputs) {
    float sum = 0;
#pragma unroll
    for (int k = 0; k < kParts; ++k) sum += memory->parts[k][n * kStride + output];
    store_output(p, p.rows.first_row + slice.first + n, int64_t{block_y()} * kPartOutputs + output,
                 sum);
  }
#endif
}

template <DType kType>
void run_super_parts(cudaStream_t stream, const QuantMatmul& params, int64_t rows) {
  const dim3 grid =
      grid2((rows + kPartRows - 1) / kPartRows, (params.outputs + kPartOutputs - 1) / kPartOutputs);
  allow_shared<matmul_super_parts_kernel<kType>>();
  HEARTH_LAUNCH_AFTER(stream, matmul_super_parts_kernel<kType>, grid, kPartThreads,
                      sizeof(SuperPartMemory<kType>), params);
}

}  // namespace hearth::kernels
