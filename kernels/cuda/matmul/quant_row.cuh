#pragma once
// out = x w^T for quantized weights and one row: the same products, chains and bits as in
// kernels/cuda/matmul/quant.cuh, with a third of the work per weight. There a row of x is one of
// the eight columns of operand B, and the others are computed in vain. Here it fills them all:
// block b of a chunk is column b of an operand that is zero elsewhere, so eight instructions leave
// the sums of eight blocks in one accumulator. Then a lane takes half of an output's sums and
// continues its chain.

#include "kernels/cuda/matmul/gate_tail.cuh"
#include "kernels/cuda/matmul/rows.cuh"
#include "kernels/cuda/matmul/unpack.cuh"
#include "kernels/cuda/mma.cuh"

namespace hearth::kernels {

/// Whether registers suffice for three blocks per multiprocessor with two chunks on their way.
constexpr bool light_row(const QuantForm& form) {
  return form.num_planes() <= 4 && form.scale_bytes < 32;
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1200
inline constexpr int kLightBlocks = 2;  // the compiler takes a few registers more there
#else
inline constexpr int kLightBlocks = 3;
#endif

/// A block of warps computes one group of 16 outputs, one warp per part; kAhead chunks of a warp
/// are on their way.
template <DType kType, int kAhead>
__global__ void __launch_bounds__(kParts* kWarp,
                                  kAhead == 1 || light_row(quant_form(kType)) ? kLightBlocks : 2)
    matmul_quant_row_kernel(QuantMatmul p) {
  constexpr int kChunkBytes = quant_form(kType).chunk_bytes();
  constexpr int kOffset = quant_form(kType).offset;
  constexpr bool kHasMin = quant_form(kType).has_min;
  constexpr int kHalfBlocks = kChunkBlocks / 2;
  constexpr int kSubs = quant_form(kType).subs;
  const auto lane = thread_x() % kWarp;
  const auto part = thread_x() / kWarp;
  const int output = lane % kGroupOutputs;
  const bool upper = lane >= kGroupOutputs;  // blocks 4 to 7 of each chunk
  const int begin = part_begin(p.chunks, part);
  const int end = part_begin(p.chunks, part + 1);
  const std::byte* group = p.weights + int64_t{blockIdx.y} * p.chunks * kChunkBytes;
  ChunkShare<kType> next[kAhead];
  StoredScales next_scales[kAhead];
  const auto load = [&](int i, int chunk) {
    const std::byte* from = group + int64_t{chunk} * kChunkBytes;
    next[i].load_planes(from, lane);
    next_scales[i] = load_scales<kType>(from, output);
  };
  const auto load_first = [&] {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (begin + i < end) load(i, begin + i);
    }
  };
  const RowSlice slice = begin_with_weights(p, 1, load_first);
  const bool known = p.rows.slices == nullptr;  // nothing waits for the number of rows then
  if (!known) {
    if (slice.num_rows == 0) return;
    group += slice.expert * p.expert_bytes;
    load_first();
  }

  // A lane loads a share of column lane / 4 of operand B.
  const int64_t row = known ? block_x() : slice.in(0);
  const std::byte* x =
      p.x + row * p.chunks * kChunkInputs + lane / 8 * 64 + lane % 4 * 16 + lane / 4 % 2 * 8;
  const ActivationBlock* blocks =
      p.blocks + row * p.chunks * kChunkBlocks + (upper ? kHalfBlocks : 0);

  const int own_output = block_y() * kGroupOutputs + thread_x();
  const bool stores = thread_x() < kGroupOutputs && own_output < p.outputs && slice.num_rows > 0;
  float residual = 0;
  if (stores && p.residual.data != nullptr) {
    residual = p.residual.data[slice.out(0) * p.residual.stride + own_output];
  }

  __shared__ __align__(16) int sums[kParts][kGroupOutputs][kChunkBlocks * kSubs + 4];
  float acc = 0;
#pragma unroll 1
  for (int chunk = begin; chunk < end; ++chunk) {
    const ChunkShare<kType>& w = next[0];
    const StoredScales scales = upper ? upper_half<kType>(next_scales[0]) : next_scales[0];
    const auto column = load_as<uint2>(x + int64_t{chunk} * kChunkInputs);
    uint4 pairs[kHalfBlocks / 2];
#pragma unroll
    for (int b = 0; b < kHalfBlocks / 2; ++b) {
      pairs[b] = load_as<uint4>(blocks + chunk * kChunkBlocks + 2 * b);
    }

    int c[kSubs][4] = {};
#pragma unroll
    for (int b = 0; b < kChunkBlocks; ++b) {
      uint32_t a[4];
      w.codes(b, a);
      const bool own = lane / 4 == b;
      const uint32_t b0 = own ? column.x : 0;
      const uint32_t b1 = own ? column.y : 0;
      if constexpr (kSubs == 2) {
        mma_s8_k16(c[0], a[0], a[1], b0);
        mma_s8_k16(c[1], a[2], a[3], b1);
      } else {
        mma_s8_k32(c[0], a, b0, b1);
      }
    }
#pragma unroll
    for (int i = 1; i < kAhead; ++i) {
      next[i - 1] = next[i];
      next_scales[i - 1] = next_scales[i];
    }
    if (chunk + kAhead < end) load(kAhead - 1, chunk + kAhead);  // into the registers just used
    __syncwarp();                                                // the sums before have been read
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      int* to = sums[part][lane / 4 + 8 * r] + lane % 4 * 2 * kSubs;
      if constexpr (kSubs == 2) {
        *reinterpret_cast<int4*>(to) = {c[0][2 * r], c[1][2 * r], c[0][2 * r + 1], c[1][2 * r + 1]};
      } else {
        *reinterpret_cast<int2*>(to) = {c[0][2 * r], c[0][2 * r + 1]};
      }
    }
    __syncwarp();

    // The factors of the lane's blocks; then the chain, through the lower blocks and the upper.
    const int* own = sums[part][output] + (upper ? kHalfBlocks * kSubs : 0);
    float product[kHalfBlocks], scale[kHalfBlocks];
    [[maybe_unused]] float sum_of[kHalfBlocks], min[kHalfBlocks];
#pragma unroll
    for (int b = 0; b < kHalfBlocks; ++b) {
      const uint4& two = pairs[b / 2];
      const ActivationBlock block =
          b % 2 == 0 ? activation_block(two.x, two.y) : activation_block(two.z, two.w);
      const int sum = block.sum[0] + block.sum[1];
      if constexpr (kSubs == 2) {
        product[b] =
            sum_of_halves<kType>(own[2 * b], own[2 * b + 1], scale_of<kType>(scales, 2 * b),
                                 scale_of<kType>(scales, 2 * b + 1));
        scale[b] = block.d;
      } else {
        product[b] = static_cast<float>(own[b] - kOffset * sum);
        scale[b] = block.d * scale_of<kType>(scales, b);
        if constexpr (kHasMin) {
          sum_of[b] = block.d * static_cast<float>(sum);
          min[b] = min_of<kType>(scales, b);
        }
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (half == 1) acc = __shfl_sync(kAllLanes, acc, output);
#pragma unroll
      for (int b = 0; b < kHalfBlocks; ++b) {
        if (chunk * kChunkBlocks + half * kHalfBlocks + b >= p.num_blocks) break;
        acc = fmaf(product[b], scale[b], acc);
        if constexpr (kHasMin) acc = fmaf(sum_of[b], min[b], acc);
      }
    }
    acc = __shfl_sync(kAllLanes, acc, output + kGroupOutputs);
  }

  __shared__ float parts[kParts][kGroupOutputs];
  if (!upper) parts[part][output] = acc;
  __syncthreads();
  if (stores) {
    float sum = 0;
#pragma unroll
    for (int k = 0; k < kParts; ++k) sum += parts[k][thread_x()];
    if (p.residual.data != nullptr) sum += residual;
    p.out.data[slice.out(0) * p.out.stride + own_output] = sum;
  }
  if constexpr (ends_with_gate(kType)) {
    if (p.gate.arrivals != nullptr) return activate_last(p, 1);
  }
  end_turn(p);
}

/// `slices` slices of one row.
template <DType kType>
void run_quant_row(cudaStream_t stream, const QuantMatmul& params, int64_t slices) {
  const int64_t groups = (params.outputs + kGroupOutputs - 1) / kGroupOutputs;
  const dim3 grid = grid2(slices, groups);
  // Where registers are short, a second chunk on its way is worth them only to long parts.
  constexpr bool kLight = light_row(quant_form(kType));
  if (kLight || chunks_per_part(params.chunks) > 2) {
    HEARTH_LAUNCH(stream, (matmul_quant_row_kernel<kType, 2>), grid, kParts * kWarp, 0, params);
  } else if constexpr (!kLight) {
    HEARTH_LAUNCH(stream, (matmul_quant_row_kernel<kType, 1>), grid, kParts * kWarp, 0, params);
  }
}

}  // namespace hearth::kernels
