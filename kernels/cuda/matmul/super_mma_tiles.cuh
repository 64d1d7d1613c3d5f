#pragma once
// out = x w^T (+ residual) for types with super-blocks and many rows, on devices without wgmma. A
// block of four warps computes 128 (64) outputs and 64 rows, each warp 32 (16) outputs for all
// rows: a warp unpacks its weights once for eight tiles of rows. x is copied to shared memory two
// blocks of inputs at a time while the two before are multiplied, the scales of weights one chunk
// ahead. What earlier parts summed up waits in shared memory, of which two blocks fit in a
// multiprocessor.
//
// No device has run this kernel yet: it is used with CudaOptions::unconfirmed.

#include "kernels/cuda/matmul/rolling_share.cuh"
#include "kernels/cuda/matmul/super_terms.cuh"
#include "kernels/cuda/matmul/tile_totals.cuh"

namespace hearth::kernels {

inline constexpr int kMmaTileWarps = 4;
inline constexpr int kMmaTileThreads = kMmaTileWarps * kWarp;
inline constexpr int kMmaTileGroups = 2;  ///< of 16 outputs per warp
static_assert(kTileOutputs == kMmaTileWarps * kMmaTileGroups * kGroupOutputs);

template <DType kType>
struct MmaTileMemory {
  TileTotals<kTileRows / 8, kMmaTileGroups, kMmaTileThreads> totals;
  uint4 x[2][kTileRows * 4];  ///< of these two blocks and the next two, as operand B
  /// Of each warp, of this chunk and the next: what it has before its planes.
  std::byte scales[kMmaTileWarps][2][kMmaTileGroups][quant_form(kType).planes_at()];
};

template <DType kType>
__global__ void __launch_bounds__(kMmaTileThreads, 2) matmul_super_mma_tiles_kernel(QuantMatmul p) {
  after_previous_launch();
  constexpr QuantForm kForm = quant_form(kType);
  constexpr int kGroups = kMmaTileGroups;
  constexpr int kTiles = kTileRows / 8;
  constexpr int kAtOnce = kForm.subs == 2 ? 1 : 2;  // blocks unpacked, as registers suffice
  const RowSlice slice = slice_of(p.rows, block_x(), kTileRows);
  if (slice.num_rows == 0) return;
  const int lane = thread_x() % kWarp;
  const int warp = thread_x() / kWarp;
  // Where the first group's chunk begins, and how far the second one's is from it, in units of 16
  // bytes. Groups past the last repeat it: they are computed and dropped.
  constexpr int kChunkUnits = kForm.chunk_bytes() / 16;
  const int last_group = (p.outputs - 1) / kGroupOutputs;
  const int first_group = (block_y() * kMmaTileWarps + warp) * kGroups;
  const int group_step = first_group < last_group ? p.chunks * kChunkUnits : 0;
  int at = (first_group < last_group ? first_group : last_group) * p.chunks * kChunkUnits;
  const auto group = [&](int i) { return p.weights + int64_t{at + i * group_step} * 16; };
  const auto planes = [&](int i) { return group(i) + kForm.planes_at() + lane * 16; };
  RollingShare<kType> w[kGroups];
#pragma unroll
  for (int i = 0; i < kGroups; ++i) w[i].load_first(planes(i));

  HEARTH_DYN_SHARED(MmaTileMemory<kType>, memory);
  // Rows past the slice repeat the last one: they are computed and dropped. All rows of a round
  // have fewer than 2^31 units of 16 bytes.
  const int row_units = p.chunks * (kChunkInputs / 16);
  const auto units_of = [&](int n) {
    return (slice.first + (n < slice.num_rows ? n : slice.num_rows - 1)) * row_units;
  };
  const auto stage = [&](int pair) {
#pragma unroll
    for (int i = 0; i < kTileRows * 4 / kMmaTileThreads; ++i) {
      const int unit = i * kMmaTileThreads + thread_x();
      start_copy<16, Through::kSecondLevel>(
          &memory->x[pair % 2][unit], p.x + int64_t{units_of(unit / 4) + pair * 4 + unit % 4} * 16);
    }
  };
  const auto stage_scales = [&](int chunk, int ahead) {
    if (lane * 16 >= kForm.planes_at()) return;
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      start_copy<16>(memory->scales[warp][chunk % 2][i] + lane * 16, group(i) + ahead + lane * 16);
    }
  };
  stage_scales(0, 0);
  stage(0);

  int part_end = chunks_per_part(p.chunks);
  float acc[kTiles][kGroups][4] = {};
#pragma unroll 1
  for (int chunk = 0; chunk < p.chunks; ++chunk) {
    const bool more = chunk + 1 < p.chunks;
    const auto& scales = memory->scales[warp][chunk % 2];
    int total[kTiles][kGroups][4] = {};
#pragma unroll
    for (int pair = 0; pair < kChunkBlocks / 2; ++pair) {
      wait_for_all_copies();
      __syncthreads();  // these two blocks are staged, and the two before have been multiplied
      if (pair == 0 && more) stage_scales(chunk + 1, kForm.chunk_bytes());
      if (pair < 3 || more) stage(chunk * (kChunkBlocks / 2) + pair + 1);
#pragma unroll
      for (int first = 0; first < 2; first += kAtOnce) {
        uint32_t a[kAtOnce][kGroups][4];
        int integers[kAtOnce][kGroups][2][kForm.subs];
#pragma unroll
        for (int b = 0; b < kAtOnce; ++b) {
#pragma unroll
          for (int i = 0; i < kGroups; ++i) {
            w[i].codes(2 * pair + first + b, a[b][i]);
            load_integers<kType>(scales[i], 2 * pair + first + b, integers[b][i]);
            if (first + b == 0) continue;
            w[i].replace_bits(planes(i), pair, more);
            w[i].replace_pair(planes(i), pair, more);
          }
        }
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
          if (tile % 2 == 0 && 8 * tile >= slice.num_rows) break;
          const auto x = load_as<uint4>(&memory->x[pair % 2][tile * kWarp + lane]);
#pragma unroll
          for (int b = first; b < first + kAtOnce; ++b) {
#pragma unroll
            for (int i = 0; i < kGroups; ++i) {
              const auto scale = [&](int r, int s) { return integers[b - first][i][r][s]; };
              add_products<kType>(a[b - first][i], b == 0 ? x.x : x.z, b == 0 ? x.y : x.w, scale,
                                  total[tile][i]);
            }
          }
        }
      }
    }
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      if (tile % 2 == 0 && 8 * tile >= slice.num_rows) break;
      const uint4 own = load_sums(p.blocks, units_of(8 * tile + lane / 4), chunk);
      add_chunks<kType>(scales, own, total[tile], acc[tile]);
    }
    at += kChunkUnits;
    if (chunk + 1 != part_end || !more) continue;
    memory->totals.add_part(part_end == chunks_per_part(p.chunks), acc);
    part_end += chunks_per_part(p.chunks);
  }

  memory->totals.store(p, slice, first_group, part_end == chunks_per_part(p.chunks), acc);
}

template <DType kType>
void run_super_mma_tiles(cudaStream_t stream, const QuantMatmul& params, int64_t rows) {
  static_assert(sizeof(MmaTileMemory<kType>) <= 48 * 1024);  // every device has it
  // Neighbouring blocks use other rows of the same weights, which are then still in the cache.
  const dim3 grid =
      grid2((rows + kTileRows - 1) / kTileRows, (params.outputs + kTileOutputs - 1) / kTileOutputs);
  HEARTH_LAUNCH_AFTER(stream, matmul_super_mma_tiles_kernel<kType>, grid, kMmaTileThreads,
                      sizeof(MmaTileMemory<kType>), params);
}

}  // namespace hearth::kernels
