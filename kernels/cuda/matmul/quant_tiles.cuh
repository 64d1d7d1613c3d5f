#pragma once
// out = x w^T (+ residual) for many rows: a block of four warps computes 128 outputs and 64 rows,
// 32 outputs each. The warps share x, which is copied to shared memory two blocks of inputs at a
// time while the two before are multiplied; each loads its own weights. What earlier parts summed
// up waits in shared memory, which leaves registers for a third block on a multiprocessor.

#include "kernels/cuda/matmul/quant_share.cuh"
#include "kernels/cuda/matmul/quant_terms.cuh"
#include "kernels/cuda/matmul/tile_totals.cuh"

namespace hearth::kernels {

inline constexpr int kTileWarps = 4;
inline constexpr int kTileThreads = kTileWarps * kWarp;
static_assert(kTileOutputs == kTileWarps * kShareOutputs);

template <DType kType>
struct TileMemory {
  TileTotals<kTileRows / 8, kShareGroups, kTileThreads> totals;
  struct Staged {
    uint2 x[2][kTileRows * 4];  ///< per block, in the order of operand B
    RowTerms<kType> rows[2][kTileRows];
  } staged[2];
  ScaleTerms<kType> scales[kTileWarps][2][kShareOutputs];
};

template <DType kType>
__global__ void __launch_bounds__(kTileThreads, 3) matmul_quant_tiles_kernel(QuantMatmul p) {
  after_previous_launch();
  constexpr int kTiles = kTileRows / 8;
  constexpr QuantForm kForm = quant_form(kType);
  constexpr int kTogether = kForm.ones || kForm.subs == 2 ? 1 : 2;
  const RowSlice slice = slice_of(p.rows, block_x(), kTileRows);
  if (slice.num_rows == 0) return;
  const auto lane = thread_x() % kWarp;
  const auto warp = thread_x() / kWarp;
  const int first_group = (block_y() * kTileWarps + warp) * kShareGroups;
  WarpShare<kType> w;
  w.begin(p, 0, first_group, 0);
  w.load_first(lane);

  HEARTH_DYN_SHARED(TileMemory<kType>, memory);
  auto& scales = memory->scales[warp];
  // What the thread copies: 8 bytes of x of every sixteenth row, and the block's terms of one row.
  // Rows past the slice repeat the last one: they are computed and dropped.
  // The positions of rows in x are in units of 16 bytes.
  constexpr int kCopies = kTileRows * 8 / kTileThreads;
  const int row_units = p.chunks * (kChunkInputs / 16);
  const int first_row = (slice.first + thread_x() / 8) * row_units;
  const int last_row = (slice.first + slice.num_rows - 1) * row_units;
  const int copied_block = thread_x() % 2;
  static_assert(kTileThreads == 2 * kTileRows);
  const int own_row =
      slice.first + (thread_x() / 2 < slice.num_rows ? thread_x() / 2 : slice.num_rows - 1);
  const int own_blocks = own_row * p.chunks * kChunkBlocks + copied_block;
  uint2 raw;
  const auto stage = [&](int pair) {
    const std::byte* from = p.x + int64_t{pair} * 64 + thread_x() % 8 * 8;
    uint2* to = memory->staged[pair % 2].x[copied_block] + thread_x() / 8 * 4 + thread_x() % 8 / 2;
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const int row = first_row + i * (kTileThreads / 8) * row_units;
      start_copy<8>(to + i * (kTileThreads / 8 * 4),
                    from + int64_t{row < last_row ? row : last_row} * 16);
    }
    raw = load_as<uint2>(p.blocks + (own_blocks + 2 * pair));
  };
  stage(0);

  const int per_part = chunks_per_part(p.chunks);
  int part_end = per_part;
  float acc[kTiles][kShareGroups][4] = {};
  for (int chunk = 0; chunk < p.chunks; ++chunk) {
    const bool more = chunk + 1 < p.chunks;
#pragma unroll
    for (int pair = 0; pair < kChunkBlocks / 2; ++pair) {
      const int first = chunk * kChunkBlocks + 2 * pair;
      if (first >= p.num_blocks) break;
      auto& staged = memory->staged[pair % 2];
      staged.rows[copied_block][thread_x() / 2] = row_terms<kType>(raw.x, raw.y);
      w.store_scales(pair, more, scales, lane);
      wait_for_all_copies();
      // These two blocks are staged, and the two before have been multiplied.
      __syncthreads();
      if (first + 2 < p.num_blocks) stage(first / 2 + 1);
#pragma unroll
      for (int b = 0; b < 2; ++b) {
        if (first + b >= p.num_blocks) break;
        BlockOperand<kType> operand[kShareGroups];
        w.take(pair, b, more, scales, lane, operand);
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
          if (tile % kTogether == 0 && 8 * tile >= slice.num_rows) break;
          const auto column = load_as<uint2>(&staged.x[b][tile * kWarp + lane]);
          const RowPair<kType> x(&staged.rows[b][8 * tile + 2 * (lane % 4)]);
#pragma unroll
          for (int i = 0; i < kShareGroups; ++i) {
            add_products<kType>(operand[i], column.x, column.y, x, acc[tile][i]);
          }
        }
      }
      w.run_ahead(pair, more, lane);
      __syncwarp();  // the scales have been read
    }
    w.next_chunk();
    if (chunk + 1 != part_end || !more) continue;
    memory->totals.add_part(part_end == per_part, acc);
    part_end += per_part;
  }
  memory->totals.store(p, slice, first_group, part_end == per_part, acc);
}

template <DType kType>
void run_quant_tiles(cudaStream_t stream, const QuantMatmul& params, int64_t rows) {
  static_assert(sizeof(TileMemory<kType>) <= 48 * 1024);  // every device has it
  // Neighbouring blocks use other rows of the same weights, which are then still in the cache.
  const dim3 grid =
      grid2((rows + kTileRows - 1) / kTileRows, (params.outputs + kTileOutputs - 1) / kTileOutputs);
  HEARTH_LAUNCH_AFTER(stream, matmul_quant_tiles_kernel<kType>, grid, kTileThreads,
                      sizeof(TileMemory<kType>), params);
}

}  // namespace hearth::kernels
