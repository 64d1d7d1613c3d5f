#pragma once
// out = x w^T (+ residual) for types with super-blocks and many rows, with wgmma. A weight times
// its integer scale takes up to 14 bits; its two bytes are two operands, so a chunk's sums are
// integers of the tensor cores, and the f32 chain has one step per 256 inputs:
//   code * scale + bias = 256 * high + low
//   total = 256 * sum(high * q) + sum(low * q) - bias * sum(q)
// A block of two warpgroups computes 128 outputs and 128 rows; a warp unpacks the weights of its 16
// outputs for all rows. Weights and x are copied to shared memory one chunk ahead. What earlier
// parts summed up waits there too.

#include "kernels/cuda/device_limits.cuh"
#include "kernels/cuda/matmul/super_terms.cuh"
#include "kernels/cuda/wgmma.cuh"

namespace hearth::kernels {

inline constexpr int kSuperTileRows = kWgmmaColumns;
inline constexpr int kSuperTileWarps = 8;
inline constexpr int kSuperTileThreads = kSuperTileWarps * kWarp;
inline constexpr int kSuperTileOutputs = kSuperTileWarps * kGroupOutputs;

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

template <DType kType>
struct SuperTileMemory {
  static constexpr QuantForm kForm = quant_form(kType);
  struct alignas(128) Stage {
    std::byte x[kSuperTileRows * kChunkInputs];
    std::byte sums[kHasMins<kType> ? kSuperTileRows * kSumUnits * 16 : 16];
    TileTerm terms[kSuperTileRows];
    std::byte weights[kSuperTileWarps][kForm.chunk_bytes()];
  };
  Stage stage[2];
  float4 totals[kWgmmaSums / 4][kSuperTileThreads];
};

template <DType kType>
__global__ void __launch_bounds__(kSuperTileThreads, 1) matmul_super_tiles_kernel(QuantMatmul p) {
#if defined(HEARTH_HAS_WGMMA)
  after_previous_launch();
  constexpr QuantForm kForm = quant_form(kType);
  constexpr int kChunkBytes = kForm.chunk_bytes();
  constexpr int kColumnTiles = kWgmmaColumns / 8;
  const RowSlice slice = slice_of(p.rows, block_x(), kSuperTileRows);
  if (slice.num_rows == 0) return;
  const int lane = thread_x() % kWarp;
  const int warp = thread_x() / kWarp;
  // Groups past the last repeat it: they are computed and dropped.
  const int last_group = (p.outputs - 1) / kGroupOutputs;
  const int group = block_y() * kSuperTileWarps + warp;
  const std::byte* weights =
      p.weights + int64_t{group < last_group ? group : last_group} * p.chunks * kChunkBytes;

  HEARTH_DYN_SHARED(SuperTileMemory<kType>, memory);
  // Rows past the slice are of earlier steps, or zero: they are computed and dropped.
  const int first_tile = slice.first / kRowTile;
  const auto* sums = reinterpret_cast<const std::byte*>(p.blocks);
  const std::byte* terms = sums + tile_terms_at(p.chunks) + slice.first * int64_t{sizeof(TileTerm)};
  const auto stage = [&](int chunk) {
    auto& to = memory->stage[chunk % 2];
    // Places in units of 16 bytes; all rows of a round have fewer than 2^31.
    constexpr int kTileUnits = kOperandUnits * kRowTile;
    constexpr int kTilesAtOnce = kSuperTileThreads / kTileUnits;
    int unit = ((first_tile + thread_x() / kTileUnits) * p.chunks + chunk) * kTileUnits +
               thread_x() % kTileUnits;
#pragma unroll
    for (int i = 0; i < kColumnTiles / kTilesAtOnce; ++i) {
      start_copy<16, Through::kSecondLevel>(to.x + (i * kSuperTileThreads + thread_x()) * 16,
                                            p.x + int64_t{unit} * 16);
      unit += kTilesAtOnce * p.chunks * kTileUnits;
    }
    if constexpr (kHasMins<kType>) {
      constexpr int kSumTile = kSumUnits * kRowTile;
      static_assert(kColumnTiles * kSumTile == kSuperTileThreads);
      const int64_t tile = int64_t{first_tile + thread_x() / kSumTile} * p.chunks + chunk;
      start_copy<16, Through::kSecondLevel>(to.sums + thread_x() * 16,
                                            sums + (tile * kSumTile + thread_x() % kSumTile) * 16);
    }
    if (thread_x() < kSuperTileRows / 2) {
      start_copy<16, Through::kSecondLevel>(
          &to.terms[2 * thread_x()],
          terms + (int64_t{chunk} * kQuantRows + 2 * thread_x()) * int64_t{sizeof(TileTerm)});
    }
    const std::byte* own = weights + int64_t{chunk} * kChunkBytes;
    for (int at = lane * 16; at < kChunkBytes; at += kWarp * 16) {
      start_copy<16, Through::kSecondLevel>(to.weights[warp] + at, own + at);
    }
  };
  stage(0);

  const int per_part = chunks_per_part(p.chunks);
  int part_end = per_part;
  int low[kWgmmaSums], high[kWgmmaSums];
  float acc[kWgmmaSums] = {};
  for (int chunk = 0; chunk < p.chunks; ++chunk) {
    const bool more = chunk + 1 < p.chunks;
    wait_for_all_copies();
    shared_writes_before_products();
    // This chunk is staged, and the other stage has been read.
    __syncthreads();
    if (more) stage(chunk + 1);
    const auto& staged = memory->stage[chunk % 2];
    const std::byte* own = staged.weights[warp];
    const OperandB x = operand_b(staged.x, kUnitBytes, kOperandUnits * kUnitBytes);

    uint32_t bytes[2][2][4];  // of two blocks in turn: low, high
#pragma unroll
    for (int b = 0; b < kChunkBlocks; ++b) {
      uint4 plane[kForm.num_planes()];
#pragma unroll
      for (int i = 0; i < kForm.num_planes(); ++i) {
        plane[i] = load_as<uint4>(own + kForm.planes_at() + i * kPlaneBytes + lane * 16);
      }
      uint32_t codes[4];
      unpack_codes<kType>(plane, b, codes);
      int scale[2][kForm.subs];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const std::byte* integers =
            own + kForm.scales_at() + (lane / 4 + 8 * r) * kForm.scale_bytes + kForm.subs * b;
#pragma unroll
        for (int s = 0; s < kForm.subs; ++s) scale[r][s] = scale_integer<kType>(integers[s]);
      }
      if (b >= 2) wait_for_products<1>();  // those of block b - 2, whose registers these were
      split_products<kType>(codes, scale, bytes[b % 2][0], bytes[b % 2][1]);
      begin_products();
      const OperandB inputs = x.plus(b * 2 * kUnitBytes);
      if (b == 0) {
        multiply_u8_s8<false>(low, bytes[b % 2][0], inputs);
        if constexpr (kTwoBytes<kType>) multiply_u8_s8<false>(high, bytes[b % 2][1], inputs);
      } else {
        multiply_u8_s8<true>(low, bytes[b % 2][0], inputs);
        if constexpr (kTwoBytes<kType>) multiply_u8_s8<true>(high, bytes[b % 2][1], inputs);
      }
      commit_products();
    }
    wait_for_products<0>();

    const StoredScales heads[2] = {load_head<kType>(own, lane / 4),
                                   load_head<kType>(own, lane / 4 + 8)};
    const auto for_each_row_pair = [&](const auto& add) {
#pragma unroll
      for (int tile = 0; tile < kColumnTiles; ++tile) {
        const auto two = load_as<uint4>(&staged.terms[8 * tile + 2 * (lane % 4)]);
        const float dx[2] = {__uint_as_float(two.x), __uint_as_float(two.z)};
        const int sum[2] = {static_cast<int>(two.y), static_cast<int>(two.w)};
#pragma unroll
        for (int i = 0; i < 4; ++i) add(4 * tile + i, dx[i % 2], sum[i % 2], heads[i / 2]);
      }
    };
    for_each_row_pair([&](int i, float dx, int sum, const StoredScales& head) {
      int total = low[i] - kSplitBias<kType> * sum;
      if constexpr (kTwoBytes<kType>) total += high[i] * 256;
      acc[i] = fmaf(static_cast<float>(total), dx * super_scale(head), acc[i]);
    });
    if constexpr (kHasMins<kType>) {
      uint32_t of_low[4] = {},
               of_high[4] = {};  // low sums are the first 16 of K, high ones the rest
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const auto integers =
            load_as<uint4>(own + kForm.scales_at() + (lane / 4 + 8 * r) * kForm.scale_bytes);
        of_low[r] = of_high[2 + r] = sum_weights<kType>(integers, lane % 4);
      }
      const OperandB both = operand_b(staged.sums, kUnitBytes, kSumUnits * kUnitBytes);
      begin_products();
      multiply_u8_s8<false>(low, of_low, both);
      multiply_u8_s8<false>(high, of_high, both);
      commit_products();
      wait_for_products<0>();
      for_each_row_pair([&](int i, float dx, int, const StoredScales& head) {
        const int minimum = 32 * high[i] + low[i];
        acc[i] = fmaf(static_cast<float>(minimum), -(dx * super_min(head)), acc[i]);
      });
    }

    if (chunk + 1 != part_end || !more) continue;
    part_end += per_part;
#pragma unroll
    for (int i = 0; i < kWgmmaSums / 4; ++i) {
      float4& total = memory->totals[i][thread_x()];
      const float4 before = part_end == 2 * per_part ? float4{0, 0, 0, 0} : total;
      total = {before.x + acc[4 * i], before.y + acc[4 * i + 1], before.z + acc[4 * i + 2],
               before.w + acc[4 * i + 3]};
      acc[4 * i] = acc[4 * i + 1] = acc[4 * i + 2] = acc[4 * i + 3] = 0;
    }
  }

#pragma unroll
  for (int i = 0; i < kWgmmaSums / 4; ++i) {
    const float4 before = part_end == per_part ? float4{0, 0, 0, 0} : memory->totals[i][thread_x()];
    const float added[4] = {before.x + acc[4 * i], before.y + acc[4 * i + 1],
                            before.z + acc[4 * i + 2], before.w + acc[4 * i + 3]};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int n = 8 * i + 2 * (lane % 4) + j % 2;
      const int output = group * kGroupOutputs + lane / 4 + j / 2 * 8;
      if (n < slice.num_rows && output < p.outputs) {
        store_output(p, p.rows.first_row + slice.first + n, output, added[j]);
      }
    }
  }
#endif
}

template <DType kType>
void run_super_tiles(cudaStream_t stream, const QuantMatmul& params, int64_t rows) {
  // Neighbouring blocks use other rows of the same weights, which are then still in the cache.
  const dim3 grid = grid2((rows + kSuperTileRows - 1) / kSuperTileRows,
                          (params.outputs + kSuperTileOutputs - 1) / kSuperTileOutputs);
  allow_shared<matmul_super_tiles_kernel<kType>>();
  HEARTH_LAUNCH_AFTER(stream, matmul_super_tiles_kernel<kType>, grid, kSuperTileThreads,
                      sizeof(SuperTileMemory<kType>), params);
}

}  // namespace hearth::kernels
