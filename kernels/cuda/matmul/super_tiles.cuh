#pragma once
// out = x w^T (+ residual) for types with super-blocks and many rows, with wgmma. A block of two
// warpgroups computes 128 outputs and 128 rows; a warp unpacks the weights of its 16 outputs for
// all rows. Weights and x are copied to shared memory one chunk ahead. What earlier parts summed up
// waits there too. The first warpgroup copies x for both and leads; the second runs about half
// a chunk later, so that one adds up while the other multiplies. They wait for each other only
//   second for first   until x of a chunk is there (kFull)
//   first for second   until it has multiplied the chunk whose place the next one takes (kFree)

#include "kernels/cuda/device_limits.cuh"
#include "kernels/cuda/matmul/super_parts.cuh"
#include "kernels/cuda/matmul/super_products.cuh"

namespace hearth::kernels {

inline constexpr int kSuperTileRows = 128;
inline constexpr int kSuperTileWarps = 8;
inline constexpr int kSuperTileThreads = kSuperTileWarps * kWarp;
inline constexpr int kSuperTileOutputs = kSuperTileWarps * kGroupOutputs;

template <DType kType>
struct SuperTileMemory {
  static constexpr QuantForm kForm = quant_form(kType);
  struct alignas(128) Terms {
    std::byte sums[kHasMins<kType> ? kSuperTileRows * kSumUnits * 16 : 16];
    TileTerm rows[kSuperTileRows];
  };
  alignas(128) std::byte x[2][kSuperTileRows * kChunkInputs];
  Terms terms[3];
  // Of each warp.
  std::byte planes[2][kSuperTileWarps][kForm.num_planes() * kPlaneBytes];
  std::byte scales[2][kSuperTileWarps][kForm.planes_at()];
  float4 totals[kSuperTileRows / 8][kSuperTileThreads];
};

template <DType kType>
__global__ void __launch_bounds__(kSuperTileThreads, 1) matmul_super_tiles_kernel(QuantMatmul p) {
#if defined(HEARTH_HAS_WGMMA)
  after_previous_launch();
  constexpr QuantForm kForm = quant_form(kType);
  const RowSlice slice = slice_of(p.rows, block_x(), kSuperTileRows);
  if (slice.num_rows == 0) return;
  const int lane = thread_x() % kWarp;
  const int warp = thread_x() / kWarp;
  // Where the lane's weights begin. Groups past the last repeat it: they are computed and dropped.
  constexpr int kChunkUnits = kForm.chunk_bytes() / 16;
  const int last_group = (p.outputs - 1) / kGroupOutputs;
  const int own_group = block_y() * kSuperTileWarps + warp;
  const int first_unit = (own_group < last_group ? own_group : last_group) * p.chunks * kChunkUnits;
  const std::byte* const first = p.weights + (int64_t{first_unit} + lane) * 16;

  HEARTH_DYN_SHARED(SuperTileMemory<kType>, memory);
  // Rows past the slice are of earlier steps, or zero: they are computed and dropped.
  const auto stage_x = [&](int chunk) {
    auto& terms = memory->terms[chunk % 3];
    stage_rows<kHasMins<kType>, kSuperTileRows, kWarpgroup>(
        p, slice.first, chunk, thread_x() % kWarpgroup, memory->x[chunk % 2], terms.sums,
        terms.rows);
  };
  const auto stage_weights = [&](int chunk) {
    const std::byte* own = first + int64_t{chunk * kChunkUnits} * 16;
    if (lane * 16 < kForm.planes_at()) {
      start_copy<16, Through::kSecondLevel>(memory->scales[chunk % 2][warp] + lane * 16, own);
    }
#pragma unroll
    for (int i = 0; i < kForm.num_planes(); ++i) {
      const int at = i * kPlaneBytes + lane * 16;
      start_copy<16, Through::kSecondLevel>(memory->planes[chunk % 2][warp] + at,
                                            own + kForm.planes_at() + i * kPlaneBytes);
    }
  };
  // Two barriers of each kind in turn, so that none is reached again before it was passed.
  constexpr int kLeaders = 1, kFull = 2, kFree = 4, kBegun = 6;
  const bool leads = warp < 4;
  stage_weights(0);
  if (leads) stage_x(0);

  int part_end = chunks_per_part(p.chunks);
  SuperProducts<kType, kSuperTileRows> products;
  products.clear();
  auto& acc = products.acc;
  if (!leads) arrive_and_wait(kBegun, kSuperTileThreads);
#pragma unroll 1
  for (int chunk = 0; chunk < p.chunks; ++chunk) {
    const bool more = chunk + 1 < p.chunks;
    wait_for_all_copies();
    shared_writes_before_products();
    if (leads) {
      arrive_and_wait(kLeaders, kWarpgroup);
      arrive(kFull + chunk % 2, kSuperTileThreads);
    } else {
      arrive_and_wait(kFull + chunk % 2, kSuperTileThreads);
    }
    if (more) stage_weights(chunk + 1);
    products.multiply(memory->scales[chunk % 2][warp], memory->planes[chunk % 2][warp],
                      operand_b(memory->x[chunk % 2], kUnitBytes, kOperandUnits * kUnitBytes), [&] {
                        if (!leads || !more) return;
                        if (chunk > 0) arrive_and_wait(kFree + (chunk - 1) % 2, kSuperTileThreads);
                        stage_x(chunk + 1);
                      });
    if (leads) {
      if (chunk == 0) arrive(kBegun, kSuperTileThreads);
    } else if (chunk + 2 < p.chunks) {
      arrive(kFree + chunk % 2, kSuperTileThreads);
    }
    const auto& terms = memory->terms[chunk % 3];
    products.finish(memory->scales[chunk % 2][warp], terms.rows,
                    operand_b(terms.sums, kUnitBytes, kSumUnits * kUnitBytes));
    if (chunk + 1 != part_end || !more) continue;
    const bool first_part = part_end == chunks_per_part(p.chunks);
    part_end += chunks_per_part(p.chunks);
#pragma unroll
    for (int i = 0; i < kSuperTileRows / 8; ++i) {
      float4& total = memory->totals[i][thread_x()];
      const float4 before = first_part ? float4{0, 0, 0, 0} : total;
      total = {before.x + acc[4 * i], before.y + acc[4 * i + 1], before.z + acc[4 * i + 2],
               before.w + acc[4 * i + 3]};
    }
    products.clear();
  }

#pragma unroll
  for (int i = 0; i < kSuperTileRows / 8; ++i) {
    const float4 before =
        part_end == chunks_per_part(p.chunks) ? float4{0, 0, 0, 0} : memory->totals[i][thread_x()];
    const float added[4] = {before.x + acc[4 * i], before.y + acc[4 * i + 1],
                            before.z + acc[4 * i + 2], before.w + acc[4 * i + 3]};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int n = 8 * i + 2 * (lane % 4) + j % 2;
      const int output = own_group * kGroupOutputs + lane / 4 + j / 2 * 8;
      if (n < slice.num_rows && output < p.outputs) {
        store_output(p, p.rows.first_row + slice.first + n, output, added[j]);
      }
    }
  }
#endif
}

/// Whether run_super_parts is faster: if tiles leave a quarter of the multiprocessors idle.
inline bool better_in_parts(int64_t rows, int64_t outputs) {
  const int64_t tiles = (rows + kSuperTileRows - 1) / kSuperTileRows *
                        ((outputs + kSuperTileOutputs - 1) / kSuperTileOutputs);
  return rows <= 2 * kPartRows || 4 * tiles < 3 * device_limits().multiprocessors;
}

template <DType kType>
void run_super_tiles(cudaStream_t stream, const QuantMatmul& params, int64_t rows) {
  if (better_in_parts(rows, params.outputs)) return run_super_parts<kType>(stream, params, rows);
  // Neighbouring blocks use other rows of the same weights, which are then still in the cache.
  const dim3 grid = grid2((rows + kSuperTileRows - 1) / kSuperTileRows,
                          (params.outputs + kSuperTileOutputs - 1) / kSuperTileOutputs);
  allow_shared<matmul_super_tiles_kernel<kType>>();
  HEARTH_LAUNCH_AFTER(stream, matmul_super_tiles_kernel<kType>, grid, kSuperTileThreads,
                      sizeof(SuperTileMemory<kType>), params);
}

}  // namespace hearth::kernels
