#pragma once
// out = x w^T (+ residual) for types with super-blocks and slices of 9 to 32 rows: a block of warps
// computes 32 outputs, one warp per part. Weights are read once per slice. x goes through shared
// memory, two blocks of inputs at a time, which each warp copies for itself while it multiplies the
// two before. So warps wait for each other only to add their parts.

#include "kernels/cuda/matmul/rolling_share.cuh"
#include "kernels/cuda/matmul/super_terms.cuh"

namespace hearth::kernels {

/// Groups of 16 outputs per warp: two, where registers suffice.
template <DType kType>
inline constexpr int kSuperGroups = quant_form(kType).num_planes() <= 4 && !quant_form(kType).ones
                                        ? 2
                                        : 1;
template <DType kType>
inline constexpr int kSuperOutputs = kSuperGroups<kType>* kGroupOutputs;

/// A warp's shared memory: x, the scales of a chunk, and at the end its sums.
template <DType kType>
struct SuperSliceMemory {
  static constexpr int kSumStride =
      kSuperOutputs<kType> + 4;  // lanes that store sums use all banks
  struct Staged {
    uint4 x[2][kManyRows * 4];  ///< of these two blocks and the next two, as operand B
    /// Of this chunk and the next: what it has before its planes.
    std::byte scales[2][kSuperGroups<kType>][quant_form(kType).planes_at()];
  };
  union {
    Staged staged;
    float sums[kManyRows * kSumStride];
  };
};

/// Adds the warps' parts in ascending order and stores the sums. Each warp's sums take the place of
/// what it staged.
template <DType kType>
__device__ void store_slice(const QuantMatmul& p, const RowSlice& slice,
                            SuperSliceMemory<kType>* memory,
                            const float (&acc)[kManyRows / 8][kSuperGroups<kType>][4]) {
  constexpr int kStride = SuperSliceMemory<kType>::kSumStride;
  constexpr int kOutputs = kSuperOutputs<kType>;
  const int lane = thread_x() % kWarp;
  const int part = thread_x() / kWarp;
#pragma unroll
  for (int tile = 0; tile < kManyRows / 8; ++tile) {
#pragma unroll
    for (int i = 0; i < kSuperGroups<kType>; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int n = 8 * tile + 2 * (lane % 4) + j % 2;
        memory[part].sums[n * kStride + i * kGroupOutputs + lane / 4 + j / 2 * 8] = acc[tile][i][j];
      }
    }
  }
  __syncthreads();
  const int64_t output = int64_t{block_y()} * kOutputs + thread_x() % kOutputs;
  if (output >= p.outputs) return;
  for (int n = thread_x() / kOutputs; n < slice.num_rows; n += kParts * kWarp / kOutputs) {
    float sum = 0;
#pragma unroll
    for (int k = 0; k < kParts; ++k) sum += memory[k].sums[n * kStride + thread_x() % kOutputs];
    store_output(p, slice.out(n), output, sum);
  }
}

template <DType kType>
__global__ void __launch_bounds__(kParts* kWarp, 2) matmul_super_slices_kernel(QuantMatmul p) {
  constexpr QuantForm kForm = quant_form(kType);
  constexpr int kTiles = kManyRows / 8;
  const auto lane = thread_x() % kWarp;
  const auto part = thread_x() / kWarp;
  const int begin = part_begin(p.chunks, part);
  const int end = part_begin(p.chunks, part + 1);
  // Where the first group's chunk begins, and how far the second one's is from it, in units of 16
  // bytes. A group past the last one repeats it: it is computed and dropped.
  constexpr int kChunkUnits = kForm.chunk_bytes() / 16;
  static_assert(kForm.chunk_bytes() % 16 == 0);
  const int last_group = (p.outputs - 1) / kGroupOutputs;
  const int first_group = block_y() * kSuperGroups<kType>;
  const int group_step = first_group < last_group ? p.chunks * kChunkUnits : 0;
  int at = 0;
  RollingShare<kType> w[kSuperGroups<kType>];
  const auto group = [&](int i) { return p.weights + int64_t{at + i * group_step} * 16; };
  const auto planes = [&](int i) { return group(i) + kForm.planes_at() + lane * 16; };
  const auto load_first = [&](int expert) {
    at = expert * static_cast<int>(p.expert_bytes / 16) +
         (first_group * p.chunks + begin) * kChunkUnits;
#pragma unroll
    for (int i = 0; i < kSuperGroups<kType>; ++i) {
      if (begin < end) w[i].load_first(planes(i));
    }
  };
  const RowSlice slice = begin_with_weights(p, kManyRows, [&] { load_first(0); });
  if (slice.num_rows == 0) return;
  if (p.rows.slices != nullptr) load_first(slice.expert);

  HEARTH_DYN_SHARED(SuperSliceMemory<kType>, memory);
  auto& staged = memory[part].staged;
  // Rows past the slice repeat the last one: they are computed and dropped.
  const int own_row = lane < slice.num_rows ? lane : slice.num_rows - 1;
  // Where x of row `lane` begins, in units of 16 bytes.
  const int32_t own_units = slice.in(own_row) * (p.chunks * (kChunkInputs / 16));
  const int num_tiles = (slice.num_rows + 7) / 8;
  const auto stage = [&](int pair) {
    // A lane copies 16 bytes, of both blocks, of every eighth row: with 8 bytes there are fewer
    // bank conflicts, and it is slower by a tenth.
    const std::byte* from = p.x + int64_t{pair} * 64 + lane % 4 * 16;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      if (tile >= num_tiles) break;
      const int32_t units = __shfl_sync(kAllLanes, own_units, 8 * tile + lane / 4);
      start_copy<16>(&staged.x[pair % 2][tile * kWarp + lane], from + int64_t{units} * 16);
    }
  };
  const auto stage_scales = [&](int chunk, int ahead) {
#pragma unroll
    for (int i = 0; i < kSuperGroups<kType>; ++i) {
      if (lane * 16 >= quant_form(kType).planes_at()) continue;
      start_copy<16>(staged.scales[chunk % 2][i] + lane * 16, group(i) + ahead + lane * 16);
    }
  };
  if (begin < end) {
    stage_scales(begin, 0);
    stage(begin * (kChunkBlocks / 2));
  }

  float acc[kTiles][kSuperGroups<kType>][4] = {};
  for (int chunk = begin; chunk < end; ++chunk) {
    const bool more = chunk + 1 < end;
    const auto& chunk_scales = staged.scales[chunk % 2];
    if (more) stage_scales(chunk + 1, kForm.chunk_bytes());
    int total[kTiles][kSuperGroups<kType>][4] = {};
#pragma unroll
    for (int pair = 0; pair < kChunkBlocks / 2; ++pair) {
      wait_for_all_copies();
      __syncwarp();
      // None is under way when the warp leaves the loop.
      if (pair < 3 || more) stage(chunk * (kChunkBlocks / 2) + pair + 1);
#pragma unroll
      for (int b = 2 * pair; b < 2 * pair + 2; ++b) {
#pragma unroll
        for (int i = 0; i < kSuperGroups<kType>; ++i) {
          uint32_t a[4];
          w[i].codes(b, a);
          if (b % 2 == 1) w[i].replace_bits(planes(i), pair, more);
          int scales[2][kForm.subs];
          load_integers<kType>(chunk_scales[i], b, scales);
#pragma unroll
          for (int tile = 0; tile < kTiles; ++tile) {
            if (tile >= num_tiles) break;
            const auto column = load_as<uint2>(
                reinterpret_cast<const std::byte*>(&staged.x[pair % 2][tile * kWarp + lane]) +
                b % 2 * 8);
            const auto scale = [&](int r, int s) { return scales[r][s]; };
            add_products<kType>(a, column.x, column.y, scale, total[tile][i]);
          }
        }
      }
#pragma unroll
      for (int i = 0; i < kSuperGroups<kType>; ++i) w[i].replace_pair(planes(i), pair, more);
      __syncwarp();  // what was staged has been read
    }

#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      if (tile >= num_tiles) break;
      const int32_t units = __shfl_sync(kAllLanes, own_units, 8 * tile + lane / 4);
      add_chunks<kType>(chunk_scales, load_sums(p.blocks, units, chunk), total[tile], acc[tile]);
    }
    __syncwarp();  // the scales have been read
    at += kChunkUnits;
  }

  store_slice<kType>(p, slice, memory, acc);
}

template <DType kType>
void run_super_slices(cudaStream_t stream, const QuantMatmul& params, int64_t slices) {
  constexpr size_t kSharedBytes = kParts * sizeof(SuperSliceMemory<kType>);
  static_assert(kSharedBytes <= 48 * 1024);  // every device has it
  // Neighbouring blocks use other rows of the same weights, which are then still in the cache.
  const dim3 grid =
      grid2(slices, (params.outputs + kSuperOutputs<kType> - 1) / kSuperOutputs<kType>);
  HEARTH_LAUNCH_AFTER(stream, matmul_super_slices_kernel<kType>, grid, kParts * kWarp, kSharedBytes,
                      params);
}

}  // namespace hearth::kernels
