#pragma once
// out = x w^T (+ residual) for f16 and bf16 weights and many rows with wgmma. A launch rounds x
// once, in the order of wgmma's operand B. Then a block of two warpgroups computes 128 outputs and
// 256 or 128 rows, 64 rows at a time: two such products are in turn, so that a warpgroup adds one
// to its sums while the tensor cores compute the other. x is copied to shared memory two or three
// chunks ahead; a warp loads its weights into registers one or three chunks ahead. Sums of all
// parts so far wait in shared memory.

#include "kernels/cuda/device_limits.cuh"
#include "kernels/cuda/matmul/half_rounded.cuh"
#include "kernels/cuda/wgmma.cuh"

namespace hearth::kernels {

inline constexpr int kWideGroups = 8;  // of 16 outputs, one per warp
inline constexpr int kWideOutputs = kWideGroups * kHalfOutputs;
inline constexpr int kWideThreads = kWideGroups * kWarp;
inline constexpr int kWideColumns = 64;  // rows of one product
/// 256 bf16 rows, with two terms each, would not fit in shared memory.
template <typename T>
inline constexpr int kMostWideRows = kTerms<T> == 1 ? 256 : 128;

template <typename T, int kRows>
struct WideMemory {
  static constexpr int kStages = kRows == 256 ? 3 : 4;                ///< chunks of x
  static constexpr int kTileBytes = 8 * 16 * RoundedRows<T>::kUnits;  ///< of 8 rows
  struct Stage {
    alignas(128) std::byte x[kRows / 8 * kTileBytes];
    float unscale[kRows];
  };
  Stage stages[kStages];  ///< chunk % kStages
  float4 totals[kRows / 8][kWideThreads];
};

#if defined(HEARTH_HAS_WGMMA)

/// Starts copying a chunk of the slice's rows. Rows past the last tile of 8 repeat it.
template <typename T, int kRows>
__device__ void stage_wide_rows(const RoundedRows<T>& x, const RowSlice& slice, int chunk,
                                int chunks, typename WideMemory<T, kRows>::Stage& to) {
  constexpr int kUnits = 8 * RoundedRows<T>::kUnits;
  const int first_tile = slice.first / 8 + thread_x() / kUnits;
  const int last_tile = (slice.first + slice.num_rows - 1) / 8;
#pragma unroll
  for (int i = 0; i < kRows / 8 * kUnits / kWideThreads; ++i) {
    const int own_tile = first_tile + i * (kWideThreads / kUnits);
    const int tile = own_tile < last_tile ? own_tile : last_tile;
    // All units of the scratch are fewer than 2^31.
    start_copy<16, Through::kSecondLevel>(
        to.x + (i * kWideThreads + thread_x()) * 16,
        x.operands + (tile * chunks + chunk) * kUnits + thread_x() % kUnits);
  }
  if (std::is_same_v<T, Half> && thread_x() < kRows / 4) {
    const int own_row = slice.first + 4 * thread_x();
    const int row = own_row < x.stride ? own_row : x.stride - 4;
    start_copy<16, Through::kSecondLevel>(&to.unscale[4 * thread_x()],
                                          x.unscales + int64_t{chunk} * x.stride + row);
  }
}

/// The sums of a warp's 16 outputs and kRows rows.
template <typename T, int kRows>
struct WideSums {
  static constexpr int kProducts = kRows / kWideColumns;
  static_assert(kProducts % 2 == 0);
  float acc[kProducts][kWideColumns / 2] = {};
  float c[2][kWideColumns / 2];  // of two products in turn

  /// Begins the product of a chunk with rows [64 i, 64 i + 64).
  __device__ void multiply(int i, const ChunkWeights& w, const std::byte* x) {
    constexpr int kTileBytes = WideMemory<T, kRows>::kTileBytes;
    const OperandB rows =
        operand_b(x, kUnitBytes, kTileBytes).plus(i * kWideColumns / 8 * kTileBytes);
    begin_products();
#pragma unroll
    for (int s = 0; s < kHalfSteps; ++s) {
      const uint32_t a[4] = {w.step[s].x, w.step[s].y, w.step[s].z, w.step[s].w};
#pragma unroll
      for (int term = 0; term < kTerms<T>; ++term) {
        const OperandB b = rows.plus((term * kHalfSteps + s) * 2 * kUnitBytes);
        if (s == 0 && term == 0) {
          multiply_k16<T, false>(c[i % 2], a, b);
        } else {
          multiply_k16<T, true>(c[i % 2], a, b);
        }
      }
    }
    commit_products();
  }

  /// Adds a product that has ended.
  __device__ void add(int i, const float* unscales) {
    unscales += i * kWideColumns + 2 * (thread_x() % 4);
#pragma unroll
    for (int tile = 0; tile < kWideColumns / 8; ++tile) {
      float unscale[2] = {1.0f, 1.0f};
      if constexpr (std::is_same_v<T, Half>) {
        const auto both = load_as<uint2>(unscales + 8 * tile);
        unscale[0] = __uint_as_float(both.x);
        unscale[1] = __uint_as_float(both.y);
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        float& sum = acc[i][4 * tile + j];
        sum = fmaf(c[i % 2][4 * tile + j], unscale[j % 2], sum);
      }
    }
  }

  /// Moves the sums of a part to the totals.
  __device__ void end_part(int i, float4 (&totals)[kRows / 8][kWideThreads]) {
#pragma unroll
    for (int tile = 0; tile < kWideColumns / 8; ++tile) {
      float4& total = totals[i * (kWideColumns / 8) + tile][thread_x()];
      float(&sum)[kWideColumns / 2] = acc[i];
      const float4 before = total;
      total = {before.x + sum[4 * tile], before.y + sum[4 * tile + 1], before.z + sum[4 * tile + 2],
               before.w + sum[4 * tile + 3]};
#pragma unroll
      for (int j = 0; j < 4; ++j) sum[4 * tile + j] = 0;
    }
  }
};

#endif

template <typename T, int kRows>
__global__ void __launch_bounds__(kWideThreads, 1)
    matmul_half_wide_kernel(PlainMatmul p, RoundedRows<T> x) {
#if defined(HEARTH_HAS_WGMMA)
  after_previous_launch();
  using Memory = WideMemory<T, kRows>;
  constexpr int kStages = Memory::kStages;
  const RowSlice slice = slice_of(p.rows, block_x(), kRows);
  if (slice.num_rows == 0) return;
  const auto chunks = static_cast<int>(half_chunks(p.cols));
  // Groups past the last repeat it: they are computed and dropped.
  const int last_group = (p.outputs - 1) / kHalfOutputs;
  const int own_group = block_y() * kWideGroups + thread_x() / kWarp;
  const uint4* weights =
      static_cast<const uint4*>(p.panels) +
      int64_t{own_group < last_group ? own_group : last_group} * chunks * kChunkLoads +
      thread_x() % kWarp;

  HEARTH_DYN_SHARED(Memory, memory);
  const auto stage = [&](int chunk) {
    if (chunk < chunks) {
      stage_wide_rows<T, kRows>(x, slice, chunk, chunks, memory->stages[chunk % kStages]);
    }
    commit_copies();
  };
#pragma unroll
  for (int i = 0; i < kStages - 1; ++i) stage(i);
  constexpr int kAhead = kRows == 256 ? 1 : 3;
  ChunkWeights w[kAhead + 1] = {};
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    if (i < chunks) w[i].load(weights + i * kChunkLoads);
  }
#pragma unroll
  for (int i = 0; i < kRows / 8; ++i) memory->totals[i][thread_x()] = {0, 0, 0, 0};
  wait_for_copies<kStages - 2>();
  shared_writes_before_products();
  __syncthreads();

  WideSums<T, kRows> sums;
  constexpr int kProducts = WideSums<T, kRows>::kProducts;
  const int per_part = chunks_per_part(chunks);
  int part_end = per_part;
  sums.multiply(0, w[0], memory->stages[0].x);
#pragma unroll 1
  for (int first = 0; first < chunks; first += kAhead + 1) {
#pragma unroll
    for (int own = 0; own <= kAhead; ++own) {
      const int chunk = first + own;
      constexpr int kSets = kAhead + 1;
#pragma unroll
      for (int i = 0; i < kProducts; ++i) {
        // The next product. Those of chunks past the last one are dropped.
        if (i + 1 < kProducts) {
          sums.multiply(i + 1, w[own], memory->stages[chunk % kStages].x);
        } else {
          sums.multiply(0, w[(own + 1) % kSets], memory->stages[(chunk + 1) % kStages].x);
        }
        if (i == 0) {
          // The next chunk is there, and all products of the one before have ended.
          wait_for_copies<kStages - 3>();
          shared_writes_before_products();
          __syncthreads();
          stage(chunk + kStages - 1);
          const int later = chunk + kAhead;
          if (later < chunks) w[(own + kAhead) % kSets].load(weights + later * kChunkLoads);
        }
        wait_for_products<1>();
        if (chunk >= chunks) continue;
        sums.add(i, memory->stages[chunk % kStages].unscale);
        if (chunk + 1 == part_end || chunk + 1 == chunks) sums.end_part(i, memory->totals);
      }
      if (chunk + 1 == part_end) part_end += per_part;
    }
    // Otherwise ptxas would wait for each product: it does not follow them into the next iteration.
    wait_for_products<0>();
  }

#pragma unroll 4
  for (int tile = 0; tile < kRows / 8; ++tile) {
    const float4 total = memory->totals[tile][thread_x()];
    const float values[4] = {total.x, total.y, total.z, total.w};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int n = 8 * tile + 2 * (thread_x() % 4) + j % 2;
      const int output = own_group * kHalfOutputs + thread_x() % kWarp / 4 + j / 2 * 8;
      if (n < slice.num_rows && output < p.outputs) {
        store_output(p, p.rows.first_row + slice.first + n, output, values[j]);
      }
    }
  }
#endif
}

/// From this number of rows on, this kernel is used. With fewer, half of its products are dropped;
/// the number was not measured.
inline constexpr int kWideFrom = 65;

template <typename T, int kRows>
void run_wide_tiles(cudaStream_t stream, const PlainMatmul& params, const RoundedRows<T>& x,
                    int64_t rows) {
  // Neighbouring blocks use other rows of the same weights, which are then still in the cache.
  const dim3 grid = grid2(ceil_div(rows, kRows), ceil_div(params.outputs, kWideOutputs));
  constexpr int kBytes = sizeof(WideMemory<T, kRows>);
  allow_shared<matmul_half_wide_kernel<T, kRows>, kBytes>();
  HEARTH_LAUNCH_AFTER(stream, (matmul_half_wide_kernel<T, kRows>), grid, kWideThreads, kBytes,
                      params, x);
}

/// Of both sizes of tiles, the one that takes less time until the last multiprocessor is done.
template <typename T>
void run_half_wide(cudaStream_t stream, const PlainMatmul& params, const RoundedRows<T>& x,
                   int64_t rows) {
  if constexpr (kMostWideRows<T> == 256) {
    const auto turns = [&](int tile_rows) {
      return ceil_div(ceil_div(rows, tile_rows) * ceil_div(params.outputs, kWideOutputs),
                      device_limits().multiprocessors);
    };
    // A tile of twice the rows reads a quarter less per product.
    if (7 * turns(256) <= 4 * turns(128)) return run_wide_tiles<T, 256>(stream, params, x, rows);
  }
  run_wide_tiles<T, 128>(stream, params, x, rows);
}

}  // namespace hearth::kernels
