#pragma once
// Products of types with super-blocks: 256 weights share d (and dmin), each sub-block of 16 or 32
// of them has an integer scale (and min), and 256 inputs share a scale dx. So a chunk's sums are
// integers, exact in any order, and the f32 chain has one step per chunk:
//   total   = sum over sub-blocks of scale * sum(code * q)
//   minimum = sum over sub-blocks of min * sum(q)
//   acc = fma(float(total), dx * d, acc)
//   acc = fma(float(minimum), -(dx * dmin), acc)    only types with mins
// Sums of q are bytes, 32 * high + low, so that dot products and tensor cores take them.

#include "kernels/cuda/matmul/rows.cuh"
#include "kernels/cuda/matmul/unpack.cuh"
#include "kernels/cuda/mma.cuh"

namespace hearth::kernels {

template <DType kType>
inline constexpr bool kHasMins = quant_form(kType).has_min;
/// Sums of q are needed where a min or an offset multiplies them.
template <DType kType>
inline constexpr bool kWeighsSums = kHasMins<kType> || quant_form(kType).offset != 0;

/// Low and high bytes of the sums of two neighbouring blocks: four of each.
struct SumBytes {
  uint32_t low, high;
};
__device__ inline SumBytes sum_bytes(uint32_t first, uint32_t second) {
  return {__byte_perm(first, second, 0x5410), __byte_perm(first, second, 0x7632)};
}

/// What multiplies the sums of sub-blocks 4 t to 4 t + 3 of 16 inputs, as bytes: their mins, or the
/// scales where codes have an offset. `words`: the output's stored scales.
template <DType kType>
__device__ uint32_t sum_weights(const uint4& words, int t) {
  constexpr QuantForm kForm = quant_form(kType);
  if constexpr (kForm.subs == 2) {
    const uint32_t word = word_of(words, t);
    return kForm.has_min ? word >> 4 & 0x0f0f0f0fu : word;
  } else {  // one min per 32 inputs
    return __byte_perm(t < 2 ? words.z : words.w, 0, t % 2 == 0 ? 0x1100 : 0x3322);
  }
}

/// One step of a chain. `weighed`: the sums of q times the output's mins, or times its scales where
/// codes have an offset, which is subtracted here; `dx`: of the row; `d`, `dmin`: of the output.
template <DType kType>
__device__ float add_super(float acc, int total, int weighed, float dx, float d, float dmin) {
  constexpr QuantForm kForm = quant_form(kType);
  if constexpr (kForm.offset != 0) total -= kForm.offset * weighed;
  acc = fmaf(static_cast<float>(total), dx * d, acc);
  if constexpr (kHasMins<kType>) acc = fmaf(static_cast<float>(weighed), -(dx * dmin), acc);
  return acc;
}

/// The weighed sums of 16 outputs and 8 rows, as the tensor cores lay them out. `weights`: of
/// outputs lane / 4 and lane / 4 + 8, sub-blocks 4 t to 4 t + 3 with t = lane % 4; `sums`: of row
/// lane / 4 and the same sub-blocks.
__device__ inline void weigh_sums(const uint32_t (&weights)[2], const SumBytes& sums,
                                  int (&out)[4]) {
#pragma unroll
  for (int& sum : out) sum = 0;
  mma_s8_k16(out, weights[0], weights[1], sums.high);
#pragma unroll
  for (int& sum : out) sum *= 32;
  mma_s8_k16(out, weights[0], weights[1], sums.low);
}

/// The stored d, and dmin if the type has it, of an output of a chunk.
template <DType kType>
__device__ StoredScales load_head(const std::byte* chunk, int output) {
  if constexpr (kHasMins<kType>) return {.head = load_as<uint32_t>(chunk + 4 * output)};
  return {.head = load_as<uint16_t>(chunk + 2 * output)};
}

/// Adds one block's products, times their scales, to the totals of 16 outputs and 8 rows. `scale(r,
/// s)`: the integer of sub-block s of output lane / 4 + 8 r.
template <DType kType, typename Scale>
__device__ void add_products(const uint32_t (&a)[4], uint32_t b0, uint32_t b1, const Scale& scale,
                             int (&total)[4]) {
  constexpr int kSubs = quant_form(kType).subs;
#pragma unroll
  for (int s = 0; s < kSubs; ++s) {
    int c[4] = {};
    if constexpr (kSubs == 2) {
      mma_s8_k16(c, a[2 * s], a[2 * s + 1], s == 0 ? b0 : b1);
    } else {
      mma_s8_k32(c, a, b0, b1);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) total[i] += c[i] * scale(i / 2, s);
  }
}

/// The integers of block b of outputs lane / 4 and lane / 4 + 8, from what a chunk has before its
/// planes.
template <DType kType>
__device__ void load_integers(const std::byte* scales, int b,
                              int (&to)[2][quant_form(kType).subs]) {
  constexpr QuantForm kForm = quant_form(kType);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const std::byte* bytes = scales + kForm.scales_at() + kForm.subs * b +
                             (thread_x() % kWarp / 4 + 8 * r) * kForm.scale_bytes;
#pragma unroll
    for (int s = 0; s < kForm.subs; ++s) to[r][s] = scale_integer<kType>(bytes[s]);
  }
}

/// What multiplies the sums of sub-blocks 4 t to 4 t + 3 of these outputs.
template <DType kType>
__device__ void load_sum_weights(const std::byte* scales, uint32_t (&to)[2]) {
  constexpr QuantForm kForm = quant_form(kType);
  const int lane = thread_x() % kWarp;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const auto integers =
        load_as<uint4>(scales + kForm.scales_at() + (lane / 4 + 8 * r) * kForm.scale_bytes);
    to[r] = sum_weights<kType>(integers, lane % 4);
  }
}

/// One step of the chains of 16 outputs and 8 rows. `sums`: of row lane / 4, sub-blocks 4 t to 4 t
/// + 3; `dx`: of rows 2 t and 2 t + 1.
template <DType kType>
__device__ void add_chunk(const std::byte* scales, const SumBytes& sums, const float (&dx)[2],
                          const int (&total)[4], float (&acc)[4]) {
  const int output = thread_x() % kWarp / 4;
  int weighed[4] = {};
  if constexpr (kWeighsSums<kType>) {
    uint32_t weights[2];
    load_sum_weights<kType>(scales, weights);
    weigh_sums(weights, sums, weighed);
  }
  const StoredScales heads[2] = {load_head<kType>(scales, output),
                                 load_head<kType>(scales, output + 8)};
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    acc[j] = add_super<kType>(acc[j], total[j], weighed[j], dx[j % 2],
                              super_scale<kType>(heads[j / 2]), super_min(heads[j / 2]));
  }
}

/// Of a chunk of a row of x that begins `units` times 16 bytes after the first: its scale, and its
/// sums of sub-blocks 4 t to 4 t + 3. They take a quarter of the bytes of x. `blocks`: of
/// QuantMatmul, of this form.
__device__ inline uint4 load_sums(const ActivationBlock* blocks, int32_t units, int chunk) {
  return load_as<uint4>(reinterpret_cast<const std::byte*>(blocks) + int64_t{units} * 4 +
                        int64_t{chunk} * (kChunkBlocks * sizeof(SuperActivation)) +
                        thread_x() % kWarp % 4 * 16);
}

/// The same step for groups of 16 outputs. `own`: load_sums of row lane / 4.
template <DType kType, int kGroups, typename Scales>
__device__ void add_chunks(const Scales& scales, const uint4& own, const int (&total)[kGroups][4],
                           float (&acc)[kGroups][4]) {
  const int lane = thread_x() % kWarp;
  const SumBytes sums = sum_bytes(own.y, own.w);
  float dx[2];
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    dx[j] = __shfl_sync(kAllLanes, __uint_as_float(own.x), (lane % 4 * 2 + j) * 4);
  }
#pragma unroll
  for (int i = 0; i < kGroups; ++i) add_chunk<kType>(scales[i], sums, dx, total[i], acc[i]);
}

}  // namespace hearth::kernels
