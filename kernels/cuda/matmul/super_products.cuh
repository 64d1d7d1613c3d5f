#pragma once
// Products of types with super-blocks with wgmma. A weight times its integer scale takes up to 14
// bits; its two bytes are two operands, so a chunk's sums are integers of the tensor cores, and the
// f32 chain has one step per 256 inputs:
//   code * scale + bias = 256 * high + low
//   total = 256 * sum(high * q) + sum(low * q) - bias * sum(q)

#include "kernels/cuda/matmul/super_terms.cuh"
#include "kernels/cuda/wgmma.cuh"

namespace hearth::kernels {

/// Added where products have both signs: the largest magnitude of one.
template <DType kType>
inline constexpr int kSplitBias = quant_form(kType).has_min ? 0 : 4096;
/// Without it all products fit in one byte.
template <DType kType>
inline constexpr bool kTwoBytes = kType != DType::kQ2_K;

/// Operands of the low and the high byte. `scale`: of outputs lane / 4 and lane / 4 + 8.
template <DType kType>
__device__ void split_products(const uint32_t (&codes)[4],
                               const int (&scale)[2][quant_form(kType).subs], uint32_t (&low)[4],
                               uint32_t (&high)[4]) {
  constexpr QuantForm kForm = quant_form(kType);
  constexpr bool kSigned = kForm.codebook != Codebook::kNone;
  constexpr int kOffset = kSigned ? 128 : kForm.offset;
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const int own = scale[r % 2][kForm.subs == 2 ? r / 2 : 0];
    const auto factor = static_cast<uint32_t>(own);
    // Two products per word, of 16 bits, neither below zero.
    const auto added = static_cast<uint32_t>((kSplitBias<kType> - kOffset * own) * 0x10001);
    const uint32_t code = kSigned ? codes[r] ^ 0x80808080u : codes[r];
    const uint32_t even = (code & 0x00ff00ffu) * factor + added;
    const uint32_t odd = (code >> 8 & 0x00ff00ffu) * factor + added;
    low[r] = __byte_perm(even, odd, 0x6240);
    high[r] = __byte_perm(even, odd, 0x7351);
  }
}

#if defined(HEARTH_HAS_WGMMA)

/// The sums of a warp's 16 outputs and kColumns rows.
template <DType kType, int kColumns>
struct SuperProducts {
  static constexpr QuantForm kForm = quant_form(kType);
  static constexpr int kSums = kColumns / 2;
  float acc[kSums];

  __device__ void clear() {
#pragma unroll
    for (float& sum : acc) sum = 0;
  }

  /// Multiplies a chunk. `scales`: what the chunk has before its planes, and `planes` those, of the
  /// warp; `x`: of all rows. `meanwhile` is called while the tensor cores are busy.
  template <typename Meanwhile>
  __device__ void multiply(const std::byte* scales, const std::byte* planes, const OperandB& x,
                           const Meanwhile& meanwhile) {
    const int lane = thread_x() % kWarp;
    uint32_t bytes[2][2][4];  // of two blocks in turn: low, high
#pragma unroll
    for (int b = 0; b < kChunkBlocks; ++b) {
      uint4 plane[kForm.num_planes()];
#pragma unroll
      for (int i = 0; i < kForm.num_planes(); ++i) {
        plane[i] = load_as<uint4>(planes + i * kPlaneBytes + lane * 16);
      }
      uint32_t codes[4];
      unpack_codes<kType>(plane, b, codes);
      int scale[2][kForm.subs];
      load_integers<kType>(scales, b, scale);
      if (b >= 2) wait_for_products<1>();  // those of block b - 2, whose registers these were
      split_products<kType>(codes, scale, bytes[b % 2][0], bytes[b % 2][1]);
      begin_products();
      const OperandB inputs = x.plus(b * 2 * kUnitBytes);
      if (b == 0) {
        multiply_u8_s8<false>(low_, bytes[b % 2][0], inputs);
        if constexpr (kTwoBytes<kType>) multiply_u8_s8<false>(high_, bytes[b % 2][1], inputs);
      } else {
        multiply_u8_s8<true>(low_, bytes[b % 2][0], inputs);
        if constexpr (kTwoBytes<kType>) multiply_u8_s8<true>(high_, bytes[b % 2][1], inputs);
      }
      commit_products();
      if (b == 1) meanwhile();
    }
    wait_for_products<0>();
  }

  /// Adds the multiplied chunk to `acc`. `terms`: of the rows; `sums`: their sums of q.
  __device__ void finish(const std::byte* scales, const TileTerm* terms, const OperandB& sums) {
    const int lane = thread_x() % kWarp;
    const StoredScales heads[2] = {load_head<kType>(scales, lane / 4),
                                   load_head<kType>(scales, lane / 4 + 8)};
    const auto for_each = [&](const auto& add) {
#pragma unroll
      for (int tile = 0; tile < kColumns / 8; ++tile) {
        const auto two = load_as<uint4>(&terms[8 * tile + 2 * (lane % 4)]);
        const float dx[2] = {__uint_as_float(two.x), __uint_as_float(two.z)};
        const int sum[2] = {static_cast<int>(two.y), static_cast<int>(two.w)};
#pragma unroll
        for (int i = 0; i < 4; ++i) add(4 * tile + i, dx[i % 2], sum[i % 2], heads[i / 2]);
      }
    };
    for_each([&](int i, float dx, int sum, const StoredScales& head) {
      int total = low_[i] - kSplitBias<kType> * sum;
      if constexpr (kTwoBytes<kType>) total += high_[i] * 256;
      acc[i] = fmaf(static_cast<float>(total), dx * super_scale<kType>(head), acc[i]);
    });
    if constexpr (kHasMins<kType>) {
      // Of K, low bytes of sums are the first 16, high ones the rest.
      uint32_t of_low[4] = {}, of_high[4] = {};
      uint32_t weights[2];
      load_sum_weights<kType>(scales, weights);
      of_low[0] = of_high[2] = weights[0];
      of_low[1] = of_high[3] = weights[1];
      begin_products();
      multiply_u8_s8<false>(low_, of_low, sums);
      multiply_u8_s8<false>(high_, of_high, sums);
      commit_products();
      wait_for_products<0>();
      for_each([&](int i, float dx, int, const StoredScales& head) {
        const int minimum = 32 * high_[i] + low_[i];
        acc[i] = fmaf(static_cast<float>(minimum), -(dx * super_min(head)), acc[i]);
      });
    }
  }

 private:
  int low_[kSums], high_[kSums];
};

/// Starts copying a chunk of kColumns rows to shared memory, as thread `thread` of kThreads: x,
/// sums and terms. The rows begin with `first`, a multiple of kRowTile.
template <bool kSumsToo, int kColumns, int kThreads>
__device__ void stage_rows(const QuantMatmul& p, int first, int chunk, int thread, std::byte* x,
                           std::byte* sums, TileTerm* terms) {
  const auto* stored = reinterpret_cast<const std::byte*>(p.blocks);
  constexpr int kUnits = kOperandUnits * kRowTile;  // of 16 bytes, of eight rows
  constexpr int kAtOnce = kThreads / kUnits;
  static_assert(kAtOnce * kUnits == kThreads);
  const int first_tile = first / kRowTile;
  // All rows of a round have fewer than 2^31 units.
  int unit = ((first_tile + thread / kUnits) * p.chunks + chunk) * kUnits + thread % kUnits;
#pragma unroll
  for (int i = 0; i < kColumns / kRowTile / kAtOnce; ++i) {
    start_copy<16, Through::kSecondLevel>(x + (i * kThreads + thread) * 16,
                                          p.x + int64_t{unit} * 16);
    unit += kAtOnce * p.chunks * kUnits;
  }
  if constexpr (kSumsToo) {
    constexpr int kSumTile = kSumUnits * kRowTile;
#pragma unroll
    for (int at = thread; at < kColumns / kRowTile * kSumTile; at += kThreads) {
      const int tile = (first_tile + at / kSumTile) * p.chunks + chunk;
      start_copy<16, Through::kSecondLevel>(sums + at * 16,
                                            stored + int64_t{tile * kSumTile + at % kSumTile} * 16);
    }
  }
  if (thread < kColumns / 2) {
    const int64_t term = int64_t{chunk} * kQuantRows + first + 2 * thread;
    start_copy<16, Through::kSecondLevel>(
        &terms[2 * thread], stored + tile_terms_at(p.chunks) + term * int64_t{sizeof(TileTerm)});
  }
}

#endif

}  // namespace hearth::kernels
