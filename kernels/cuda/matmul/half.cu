// out = x w^T (+ residual) for f16 and bf16 weights on the tensor cores: weights are operand A,
// sixteen outputs at a time; rows of x are operand B, eight at a time (layout:
// kernels/cuda/layout.cuh).
//
// Both operands have the weights' type, so x is rounded to it, 64 inputs of a row at a time:
//   f16   after scaling by the power of two that brings the largest of them to 2^14 .. 2^15:
//         nothing overflows, and the loss in small ones is far below the largest one's rounding
//   bf16  as the sum of two, x = high + low, 16 bits together
// Four (eight) instructions sum a chunk's products, one f32 chain per output adds up a part's
// chunks in ascending order, and kParts parts are added in ascending order. This is the same in
// both kernels, so a row's value depends neither on the other rows nor on which kernel ran.
//   matmul_half_kernel        a block of warps computes one group of 16 outputs and up to 32 rows,
//                             one warp per part: for few rows, when the whole device reads weights
//   matmul_half_tiles_kernel  a block computes 128 outputs and 128 (64) rows, x in shared memory

#include "kernels/cuda/layout.cuh"
#include "kernels/cuda/matmul/half.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/terms.cuh"

namespace hearth::kernels {
namespace {

constexpr int kLaneInputs = 16;  // per chunk
static_assert(4 * kLaneInputs == kHalfChunk);

/// Operands that represent one number of x.
template <typename T>
constexpr int kTerms = std::is_same_v<T, Half> ? 1 : 2;

/// A lane's share of 16 outputs in one chunk.
struct ChunkWeights {
  uint4 step[kHalfSteps];

  __device__ void load(const uint4* chunk) {
#pragma unroll
    for (int s = 0; s < kHalfSteps; ++s) step[s] = load_as<uint4>(chunk + s * kWarp);
  }
};
constexpr int kChunkLoads = kHalfSteps * kWarp;  // uint4 per chunk

/// A lane's share of one row's chunk. The row's four lanes have the same `unscale`.
template <typename T>
struct ChunkRow {
  uint32_t operand[kTerms<T>][kHalfSteps][2];
  float unscale;
};

/// Loads inputs [first, first + 16) of a row; zeros past the last one.
__device__ inline void load_inputs(const PlainMatmul& p, const float* row, int64_t first,
                                   float (&x)[kLaneInputs]) {
  if (p.aligned && first + kLaneInputs <= p.cols) {
#pragma unroll
    for (int i = 0; i < kLaneInputs; i += 4) {
      const auto four = load_as<float4>(row + first + i);
      x[i] = four.x;
      x[i + 1] = four.y;
      x[i + 2] = four.z;
      x[i + 3] = four.w;
    }
  } else {
#pragma unroll
    for (int i = 0; i < kLaneInputs; ++i) x[i] = first + i < p.cols ? row[first + i] : 0.0f;
  }
}

/// Called by all lanes of a warp; four neighbouring lanes share a row.
template <typename T>
__device__ ChunkRow<T> round_inputs(const float (&x)[kLaneInputs]) {
  ChunkRow<T> out;
  float scale = 1.0f;
  out.unscale = 1.0f;
  if constexpr (std::is_same_v<T, Half>) {
    // The bits of magnitudes order like the magnitudes, with infinity and NaN above all.
    uint32_t most = 0;
#pragma unroll
    for (int i = 0; i < kLaneInputs; ++i) {
      const uint32_t bits = __float_as_uint(x[i]) & 0x7fffffffu;
      most = bits > most ? bits : most;
    }
#pragma unroll
    for (int offset = 1; offset <= 2; offset *= 2) {
      const uint32_t other = __shfl_xor_sync(kAllLanes, most, offset);
      most = other > most ? other : most;
    }
    const PowerOfTwo power = into_half(most);
    scale = power.scale;
    out.unscale = power.inverse;
  }
#pragma unroll
  for (int s = 0; s < kHalfSteps; ++s) {
#pragma unroll
    for (int b = 0; b < 2; ++b) {
#pragma unroll
      for (int term = 0; term < kTerms<T>; ++term) out.operand[term][s][b] = 0;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float left = x[4 * s + 2 * b + i] * scale;
#pragma unroll
        for (int term = 0; term < kTerms<T>; ++term) {
          const uint32_t bits = bits_of(take_term<T>(&left));
          out.operand[term][s][b] |= bits << 16 * i;
        }
      }
    }
  }
  return out;
}

/// c += the products of one chunk.
template <typename T>
__device__ void multiply(const ChunkWeights& w, const uint32_t (&x)[kTerms<T>][kHalfSteps][2],
                         float (&c)[4]) {
#pragma unroll
  for (int s = 0; s < kHalfSteps; ++s) {
    const uint32_t a[4] = {w.step[s].x, w.step[s].y, w.step[s].z, w.step[s].w};
#pragma unroll
    for (int term = 0; term < kTerms<T>; ++term) {
      mma_k16<T>(c, a, x[term][s][0], x[term][s][1]);
    }
  }
}

/// Adds a chunk's products; `left` and `right` are the scales of its columns.
__device__ inline void add_chunk(const float (&c)[4], float left, float right, float (&acc)[4]) {
  acc[0] = fmaf(c[0], left, acc[0]);
  acc[1] = fmaf(c[1], right, acc[1]);
  acc[2] = fmaf(c[2], left, acc[2]);
  acc[3] = fmaf(c[3], right, acc[3]);
}

__device__ inline int chunks_of_part(int chunks) { return (chunks + kParts - 1) / kParts; }

template <typename T, int kTiles>
__global__ void __launch_bounds__(kParts* kWarp) matmul_half_kernel(PlainMatmul p) {
  constexpr int kRows = 8 * kTiles;
  const RowSlice slice = slice_of(p.rows, block_x(), kRows);
  if (slice.num_rows == 0) return;
  const auto lane = thread_x() % kWarp;
  const auto part = thread_x() / kWarp;
  const auto chunks = static_cast<int>(half_chunks(p.cols));
  const uint4* group = static_cast<const uint4*>(p.panels) +
                       (slice.expert * p.expert_panels + blockIdx.y) * chunks * kChunkLoads + lane;

  // Rows past the slice repeat the last one: they are computed and dropped.
  const float* x[kTiles];
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    const int n = 8 * tile + lane / 4;
    x[tile] =
        p.x.data + (p.first_x + slice.in(n < slice.num_rows ? n : slice.num_rows - 1)) * p.x.stride;
  }

  float acc[kTiles][4] = {};
  const int begin = part * chunks_of_part(chunks);
  const int last = begin + chunks_of_part(chunks);
  const int end = last < chunks ? last : chunks;
  constexpr int kAhead = 2;  // chunks in flight
  ChunkWeights next[kAhead];
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    if (begin + i < end) next[i].load(group + int64_t{begin + i} * kChunkLoads);
  }
#pragma unroll 2
  for (int chunk = begin; chunk < end; ++chunk) {
    const ChunkWeights w = next[0];
    next[0] = next[1];
    if (chunk + kAhead < end) next[1].load(group + int64_t{chunk + kAhead} * kChunkLoads);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      if (8 * tile >= slice.num_rows) break;
      float inputs[kLaneInputs];
      load_inputs(p, x[tile], int64_t{chunk} * kHalfChunk + lane % 4 * kLaneInputs, inputs);
      const ChunkRow<T> row = round_inputs<T>(inputs);
      float c[4] = {};
      multiply<T>(w, row.operand, c);
      float left = 1.0f;
      float right = 1.0f;
      if constexpr (std::is_same_v<T, Half>) {  // scales of rows 2 t and 2 t + 1
        left = __shfl_sync(kAllLanes, row.unscale, lane % 4 * 8);
        right = __shfl_sync(kAllLanes, row.unscale, lane % 4 * 8 + 4);
      }
      add_chunk(c, left, right, acc[tile]);
    }
  }

  store_parts(p, slice, acc);
}

// A block of the tiles kernel: four warps across the outputs times two across the rows.
constexpr int kWarpGroups = 2;  // groups of 16 outputs per warp
constexpr int kBlockGroups = 4 * kWarpGroups;
template <typename T>
constexpr int kWarpTiles = 8 / kTerms<T>;  // tiles of 8 rows per warp
template <typename T>
constexpr int kBlockRows = 2 * 8 * kWarpTiles<T>;
/// Bytes of a row in shared memory: [term][lane of the row: 4][step][2]. Neighbouring rows are in
/// different banks.
template <typename T>
constexpr int kRowBytes = 2 * kHalfChunk* kTerms<T> + 16;

template <typename T>
struct StagedRows {
  unsigned char operand[kBlockRows<T>][kRowBytes<T>];
  float unscale[kBlockRows<T>];

  __device__ void store(int n, int t, const ChunkRow<T>& row) {
#pragma unroll
    for (int term = 0; term < kTerms<T>; ++term) {
      auto* to = reinterpret_cast<uint4*>(operand[n] + (term * 4 + t) * 32);
      const auto& from = row.operand[term];
      to[0] = {from[0][0], from[0][1], from[1][0], from[1][1]};
      to[1] = {from[2][0], from[2][1], from[3][0], from[3][1]};
    }
    if (t == 0) unscale[n] = row.unscale;
  }
  __device__ void load(int n, int t, uint32_t (&to)[kTerms<T>][kHalfSteps][2]) const {
#pragma unroll
    for (int term = 0; term < kTerms<T>; ++term) {
#pragma unroll
      for (int pair = 0; pair < 2; ++pair) {
        const auto from = load_as<uint4>(operand[n] + (term * 4 + t) * 32 + pair * 16);
        to[term][2 * pair][0] = from.x;
        to[term][2 * pair][1] = from.y;
        to[term][2 * pair + 1][0] = from.z;
        to[term][2 * pair + 1][1] = from.w;
      }
    }
  }
};

template <typename T>
__global__ void __launch_bounds__(kParts* kWarp) matmul_half_tiles_kernel(PlainMatmul p) {
  constexpr int kTiles = kWarpTiles<T>;
  constexpr int kTurns =
      kBlockRows<T> * 4 / (kParts * kWarp);  // turns of a thread per staged chunk
  const RowSlice slice = slice_of(p.rows, block_x(), kBlockRows<T>);
  if (slice.num_rows == 0) return;
  const auto thread = thread_x();
  const int lane = thread % kWarp;
  const int warp = thread / kWarp;
  const auto chunks = static_cast<int>(half_chunks(p.cols));
  const int first_group = block_y() * kBlockGroups + warp % 4 * kWarpGroups;
  const int first_row = warp / 4 * 8 * kTiles;
  // Groups past the last repeat the last one, because their warps must reach the barriers.
  const int last_group = (p.outputs - 1) / kHalfOutputs;
  const uint4* group[kWarpGroups];
#pragma unroll
  for (int i = 0; i < kWarpGroups; ++i) {
    const int64_t own = first_group + i < last_group ? first_group + i : last_group;
    group[i] = static_cast<const uint4*>(p.panels) + own * chunks * kChunkLoads + lane;
  }
  // The rows that the thread stages, one per turn; four threads share a row.
  const float* x[kTurns];
#pragma unroll
  for (int turn = 0; turn < kTurns; ++turn) {
    const int n = (turn * kParts * kWarp + thread) / 4;
    x[turn] =
        p.x.data + (p.first_x + slice.in(n < slice.num_rows ? n : slice.num_rows - 1)) * p.x.stride;
  }

  __shared__ __align__(16) StagedRows<T> staged[2];
  float inputs[kLaneInputs];
#pragma unroll
  for (int turn = 0; turn < kTurns; ++turn) {
    load_inputs(p, x[turn], thread % 4 * kLaneInputs, inputs);
    staged[0].store((turn * kParts * kWarp + thread) / 4, thread % 4, round_inputs<T>(inputs));
  }
  ChunkWeights next[kWarpGroups];
#pragma unroll
  for (int i = 0; i < kWarpGroups; ++i) next[i].load(group[i]);

  float total[kTiles][kWarpGroups][4] = {};
  float acc[kTiles][kWarpGroups][4] = {};
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const bool more = chunk + 1 < chunks;
    ChunkWeights w[kWarpGroups];
#pragma unroll
    for (int i = 0; i < kWarpGroups; ++i) {
      w[i] = next[i];
      if (more) next[i].load(group[i] + int64_t{chunk + 1} * kChunkLoads);
    }
    // This chunk is staged, and the other half of the memory is free.
    __syncthreads();
    const StagedRows<T>& rows = staged[chunk % 2];
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      // The next chunk is loaded while a part of this one is multiplied.
      if (more) {
        load_inputs(p, x[turn], int64_t{chunk + 1} * kHalfChunk + thread % 4 * kLaneInputs, inputs);
      }
#pragma unroll
      for (int tile = turn * kTiles / kTurns; tile < (turn + 1) * kTiles / kTurns; ++tile) {
        const int n = first_row + 8 * tile;
        if (n >= slice.num_rows) break;
        uint32_t operand[kTerms<T>][kHalfSteps][2];
        rows.load(n + lane / 4, lane % 4, operand);
        const float left = rows.unscale[n + 2 * (lane % 4)];
        const float right = rows.unscale[n + 2 * (lane % 4) + 1];
#pragma unroll
        for (int i = 0; i < kWarpGroups; ++i) {
          float c[4] = {};
          multiply<T>(w[i], operand, c);
          add_chunk(c, left, right, acc[tile][i]);
        }
      }
      if (more) {
        staged[(chunk + 1) % 2].store((turn * kParts * kWarp + thread) / 4, thread % 4,
                                      round_inputs<T>(inputs));
      }
    }
    if ((chunk + 1) % chunks_of_part(chunks) != 0 && more) continue;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < kWarpGroups; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          total[tile][i][j] += acc[tile][i][j];
          acc[tile][i][j] = 0;
        }
      }
    }
  }
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < kWarpGroups; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int n = first_row + 8 * tile + 2 * (lane % 4) + j % 2;
        const int64_t output = int64_t{first_group + i} * kHalfOutputs + lane / 4 + j / 2 * 8;
        if (n < slice.num_rows && output < p.outputs) {
          store_output(p, slice.out(n), output, total[tile][i][j]);
        }
      }
    }
  }
}

template <typename T>
void run_type(cudaStream_t stream, const PlainMatmul& params, int64_t slices, int width) {
  // Neighbouring blocks use other rows of the same weights, which are then still in the cache.
  const dim3 grid = grid2(slices, ceil_div(params.outputs, kHalfOutputs));
  constexpr int kThreads = kParts * kWarp;
  if (width == kFewRows) {
    HEARTH_LAUNCH(stream, (matmul_half_kernel<T, kFewRows / 8>), grid, kThreads, 0, params);
  } else {
    HEARTH_EXPECT(width == kManyRows, width);
    HEARTH_LAUNCH(stream, (matmul_half_kernel<T, kManyRows / 8>), grid, kThreads, 0, params);
  }
}

template <typename T>
void run_tiles_type(cudaStream_t stream, const PlainMatmul& params, int64_t rows) {
  const dim3 grid =
      grid2(ceil_div(rows, kBlockRows<T>), ceil_div(params.outputs, kBlockGroups * kHalfOutputs));
  HEARTH_LAUNCH(stream, matmul_half_tiles_kernel<T>, grid, kParts * kWarp, 0, params);
}

PlainMatmul with_alignment(PlainMatmul params) {
  params.aligned = reinterpret_cast<uintptr_t>(params.x.data) % 16 == 0 && params.x.stride % 4 == 0;
  return params;
}

}  // namespace

void run_half(cudaStream_t stream, DType dtype, const PlainMatmul& params, int64_t slices,
              int width) {
  HEARTH_EXPECT(dtype == DType::kF16 || dtype == DType::kBF16, static_cast<int>(dtype));
  const PlainMatmul p = with_alignment(params);
  dtype == DType::kF16 ? run_type<Half>(stream, p, slices, width)
                       : run_type<BFloat16>(stream, p, slices, width);
}

void run_half_tiles(cudaStream_t stream, DType dtype, const PlainMatmul& params, int64_t rows) {
  HEARTH_EXPECT(dtype == DType::kF16 || dtype == DType::kBF16, static_cast<int>(dtype));
  const PlainMatmul p = with_alignment(params);
  dtype == DType::kF16 ? run_tiles_type<Half>(stream, p, rows)
                       : run_tiles_type<BFloat16>(stream, p, rows);
}

}  // namespace hearth::kernels
