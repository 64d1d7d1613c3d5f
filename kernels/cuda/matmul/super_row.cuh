#pragma once
// out = x w^T for types with super-blocks and one row. In matmul_super_kernel a row of x is one of
// the eight columns of operand B, and the others are computed in vain. Here it fills them all:
// block b of a chunk is column b of an operand that is zero elsewhere, so eight instructions leave
// the sums of eight blocks in one accumulator. Then a lane takes half of an output's sums.

#include "kernels/cuda/matmul/gate_tail.cuh"
#include "kernels/cuda/matmul/super_terms.cuh"

namespace hearth::kernels {

/// Where Q4_K would need registers for a third block that it does not have.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
inline constexpr bool kTwoBlocksOfQ4K = true;
#else
inline constexpr bool kTwoBlocksOfQ4K = false;
#endif

/// Blocks per multiprocessor: three, where registers suffice.
template <DType kType>
inline constexpr int kRowBlocks = (quant_form(kType).twos && quant_form(kType).ones) ||
                                          (kTwoBlocksOfQ4K && kType == DType::kQ4_K)
                                      ? 2
                                      : 3;

/// A block of warps computes group `group_idx` of 16 outputs, one warp per part; two chunks of a
/// warp are on their way, or one where they take many registers. kAlone: the launch may be one of
/// experts, or end with an activation.
template <DType kType, bool kAlone>
__device__ __forceinline__ void super_row(const QuantMatmul& p, int group_idx) {
  constexpr QuantForm kForm = quant_form(kType);
  constexpr int kChunkBytes = kForm.chunk_bytes();
  constexpr int kSubs = kForm.subs;
  constexpr int kSums = kChunkBlocks * kSubs;  // of an output, per chunk
  constexpr int kHalfBlocks = kChunkBlocks / 2;
  constexpr int kAhead = kForm.num_planes() <= 4 ? 2 : 1;
  const auto lane = thread_x() % kWarp;
  const auto part = thread_x() / kWarp;
  const int output = lane % kGroupOutputs;
  const bool upper = lane >= kGroupOutputs;  // blocks 4 to 7 of each chunk
  const int begin = part_begin(p.chunks, part);
  const int end = part_begin(p.chunks, part + 1);
  const std::byte* group = p.weights + int64_t{group_idx} * p.chunks * kChunkBytes;
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
  const bool known =
      !kAlone || p.rows.slices == nullptr;  // nothing waits for the number of rows then
  if (!known) {
    if (slice.num_rows == 0) return;
    group += slice.expert * p.expert_bytes;
    load_first();
  }

  // A lane loads a share of column lane / 4 of operand B.
  const int64_t row = known ? block_x() : slice.in(0);
  const std::byte* x =
      p.x + row * p.chunks * kChunkInputs + lane / 8 * 64 + lane % 4 * 16 + lane / 4 % 2 * 8;
  const auto* blocks = reinterpret_cast<const std::byte*>(p.blocks + row * p.chunks * kChunkBlocks +
                                                          (upper ? kHalfBlocks : 0));
  uint2 next_column = {};
  if (begin < end) next_column = load_as<uint2>(x + int64_t{begin} * kChunkInputs);

  const int own_output = group_idx * kGroupOutputs + thread_x();
  const bool stores = thread_x() < kGroupOutputs && own_output < p.outputs && slice.num_rows > 0;
  float residual = 0;
  if (stores && p.residual.data != nullptr) {
    residual = p.residual.data[slice.out(0) * p.residual.stride + own_output];
  }

  __shared__ __align__(16) int sums[kParts][kGroupOutputs][kSums + 4];
  float acc = 0;
#pragma unroll 1
  for (int chunk = begin; chunk < end; ++chunk) {
    const ChunkShare<kType>& w = next[0];
    const StoredScales scales = upper ? upper_half<kType>(next_scales[0]) : next_scales[0];
    const uint2 column = next_column;
    if (chunk + 1 < end) next_column = load_as<uint2>(x + int64_t{chunk + 1} * kChunkInputs);
    const std::byte* own_blocks = blocks + chunk * (kChunkBlocks * sizeof(SuperActivation));
    const auto lower_pair = load_as<uint4>(own_blocks);
    const auto upper_pair = load_as<uint4>(own_blocks + 16);

    int c[2][4] = {};  // of sub-blocks, or of every other block
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
        mma_s8_k32(c[b % 2], a, b0, b1);
      }
    }
    if constexpr (kSubs == 1) {
#pragma unroll
      for (int i = 0; i < 4; ++i) c[0][i] += c[1][i];
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

    // The lane's half of both sums, then those of both halves.
    constexpr int kOwn = kSums / 2;
    const int* own = sums[part][output] + (upper ? kOwn : 0);
    int total = 0;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) total += own[i] * scale_code<kType>(scales, i);
    total += __shfl_xor_sync(kAllLanes, total, kGroupOutputs);
    int weighed = 0;
    if constexpr (kWeighsSums<kType>) {
      const SumBytes pairs[2] = {sum_bytes(lower_pair.y, lower_pair.w),
                                 sum_bytes(upper_pair.y, upper_pair.w)};
      int high = 0;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const auto weights = static_cast<int>(sum_weights<kType>(scales.first, i));
        weighed = __dp4a(weights, static_cast<int>(pairs[i].low), weighed);
        high = __dp4a(weights, static_cast<int>(pairs[i].high), high);
      }
      weighed += 32 * high;
      weighed += __shfl_xor_sync(kAllLanes, weighed, kGroupOutputs);
    }
    acc = add_super<kType>(acc, total, weighed, __uint_as_float(lower_pair.x),
                           super_scale<kType>(scales), super_min(scales));
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
  if constexpr (kAlone) {
    if (p.gate.arrivals != nullptr) return activate_last(p, 1);
  }
  end_turn(p);
}

template <DType kType>
__global__ void __launch_bounds__(kParts* kWarp, kRowBlocks<kType>)
    matmul_super_row_kernel(QuantMatmul p) {
  super_row<kType, true>(p, block_y());
}

}  // namespace hearth::kernels
