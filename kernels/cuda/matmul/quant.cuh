#pragma once
// out = x w^T (+ residual) for quantized weights on the tensor cores: weights are operand A,
// sixteen outputs at a time; rows of x are operand B, eight at a time. The instruction sums
// integers, which is exact; the f32 chain per output, over blocks and over kParts parts in
// ascending order, is the same in both kernels. So a row's value depends neither on the other rows
// nor on which kernel ran.
//   matmul_quant_kernel        a block of warps computes one group of 16 outputs and up to 32 rows,
//                              one warp per part: for few rows, when the whole device reads weights
//   matmul_quant_tiles_kernel  a block computes 128 outputs and 64 rows, activations in shared
//   memory

#include "kernels/cuda/matmul/rows.cuh"
#include "kernels/cuda/matmul/unpack.cuh"
#include "kernels/cuda/mma.cuh"

namespace hearth::kernels {

/// The scales and sums of one block for two rows of x: columns 2 t and 2 t + 1 of a tile.
struct ColumnPair {
  ActivationBlock column[2];
};

__device__ inline ActivationBlock activation_block(uint32_t d, uint32_t sums) {
  return {__uint_as_float(d),
          {static_cast<int16_t>(sums & 0xffffu), static_cast<int16_t>(sums >> 16)}};
}

/// Adds one block's products to the accumulators of 16 outputs and 8 rows.
template <DType kType>
__device__ void add_block(const ChunkShare<kType>& w, const uint32_t (&a)[4], int b, uint32_t b0,
                          uint32_t b1, const ColumnPair& x, float (&acc)[4]) {
  constexpr QuantForm kForm = quant_form(kType);
#pragma unroll
  for (int s = 0; s < kForm.subs; ++s) {
    float sums[2];
    int c[4];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int sum =
          kForm.subs == 2 ? x.column[j].sum[s] : x.column[j].sum[0] + x.column[j].sum[1];
      sums[j] = static_cast<float>(sum);
      c[j] = c[2 + j] = -kForm.offset * sum;  // instead of subtracting the offset from every code
    }
    if constexpr (kForm.subs == 2) {
      mma_s8_k16(c, a[2 * s], a[2 * s + 1], s == 0 ? b0 : b1);
    } else {
      mma_s8_k32(c, a, b0, b1);
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float scale = scale_of<kType>(w.scales[r], kForm.subs * b + s);
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float& to = acc[2 * r + j];
        to = fmaf(static_cast<float>(c[2 * r + j]), x.column[j].d * scale, to);
        if constexpr (kForm.has_min) {
          const float min = min_of<kType>(w.scales[r], kForm.subs * b + s);
          to = fmaf(x.column[j].d * sums[j], min, to);
        }
      }
    }
  }
}

template <DType kType, int kTiles>
__global__ void __launch_bounds__(kParts* kWarp) matmul_quant_kernel(QuantMatmul p) {
  constexpr int kChunkBytes = quant_form(kType).chunk_bytes();
  constexpr int kRows = 8 * kTiles;
  const RowSlice slice = slice_of(p.rows, block_x(), kRows);
  if (slice.num_rows == 0) return;
  const auto lane = thread_x() % kWarp;
  const auto part = thread_x() / kWarp;
  const std::byte* group =
      p.weights + slice.expert * p.expert_bytes + int64_t{blockIdx.y} * p.chunks * kChunkBytes;

  // Rows past the slice repeat the last one: they are computed and dropped.
  const std::byte* x[kTiles];
  const ActivationBlock* blocks[kTiles][2];
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    const auto row_of = [&](int n) {
      n += 8 * tile;
      return int64_t{slice.in(n < slice.num_rows ? n : slice.num_rows - 1)};
    };
    x[tile] = p.x + row_of(lane / 4) * p.chunks * kChunkInputs + lane % 4 * 16;
    for (int j = 0; j < 2; ++j) {
      blocks[tile][j] = p.blocks + row_of(2 * (lane % 4) + j) * p.chunks * kChunkBlocks;
    }
  }

  float acc[kTiles][4] = {};
  const auto per_part = static_cast<int>(chunks_per_part(p.chunks, kParts));
  const int begin = part * per_part;
  const int end = begin + per_part < p.chunks ? begin + per_part : p.chunks;
  ChunkShare<kType> next;
  if (begin < end) next.load(group + int64_t{begin} * kChunkBytes, lane);
  for (int chunk = begin; chunk < end; ++chunk) {
    const ChunkShare<kType> w = next;
    if (chunk + 1 < end) next.load(group + int64_t{chunk + 1} * kChunkBytes, lane);
#pragma unroll
    for (int pair = 0; pair < kChunkBlocks / 2; ++pair) {
      const int first = chunk * kChunkBlocks + 2 * pair;
      if (first >= p.num_blocks) break;
      uint32_t a[2][4];
      w.codes(2 * pair, a[0]);
      w.codes(2 * pair + 1, a[1]);
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        if (8 * tile >= slice.num_rows) break;
        const uint4 b = load_as<uint4>(x[tile] + int64_t{first} * 32);
        const uint4 left = load_as<uint4>(blocks[tile][0] + first);
        const uint4 right = load_as<uint4>(blocks[tile][1] + first);
        add_block<kType>(w, a[0], 2 * pair, b.x, b.y,
                         {{activation_block(left.x, left.y), activation_block(right.x, right.y)}},
                         acc[tile]);
        if (first + 1 >= p.num_blocks) continue;
        add_block<kType>(w, a[1], 2 * pair + 1, b.z, b.w,
                         {{activation_block(left.z, left.w), activation_block(right.z, right.w)}},
                         acc[tile]);
      }
    }
  }

  store_parts(p, slice, acc);
}

template <DType kType>
__global__ void __launch_bounds__(kParts* kWarp) matmul_quant_tiles_kernel(QuantMatmul p) {
  constexpr int kChunkBytes = quant_form(kType).chunk_bytes();
  constexpr int kTiles = kTileRows / 8;
  constexpr int kRowBytes = kChunkInputs + 32;  // neighbouring rows are in different banks
  const RowSlice slice = slice_of(p.rows, block_x(), kTileRows);
  if (slice.num_rows == 0) return;
  const auto lane = thread_x() % kWarp;
  const auto warp = thread_x() / kWarp;
  // A warp past the last group repeats the last one, because it must reach the barriers.
  const int64_t last_group = (p.outputs - 1) / kGroupOutputs;
  const int64_t own_group = int64_t{blockIdx.y} * kParts + warp;
  const std::byte* group =
      p.weights + (own_group < last_group ? own_group : last_group) * p.chunks * kChunkBytes;

  __shared__ __align__(16) unsigned char x[kTileRows][kRowBytes];
  __shared__ __align__(16) ActivationBlock blocks[kChunkBlocks][kTileRows];
  float total[kTiles][4] = {};
  float acc[kTiles][4] = {};
  const auto per_part = static_cast<int>(chunks_per_part(p.chunks, kParts));
  for (int chunk = 0; chunk < p.chunks; ++chunk) {
    __syncthreads();  // the previous chunk has been read
    for (int i = thread_x(); i < kTileRows * kChunkInputs / 16; i += kParts * kWarp) {
      const int n = i / (kChunkInputs / 16);
      const int64_t row = slice.in(n < slice.num_rows ? n : slice.num_rows - 1);
      const int at = i % (kChunkInputs / 16) * 16;
      *reinterpret_cast<uint4*>(&x[n][at]) =
          load_as<uint4>(p.x + (row * p.chunks + chunk) * kChunkInputs + at);
    }
    for (int i = thread_x(); i < kTileRows * kChunkBlocks; i += kParts * kWarp) {
      const int n = i / kChunkBlocks;
      const int64_t row = slice.in(n < slice.num_rows ? n : slice.num_rows - 1);
      blocks[i % kChunkBlocks][n] =
          p.blocks[(row * p.chunks + chunk) * kChunkBlocks + i % kChunkBlocks];
    }
    ChunkShare<kType> w;
    w.load(group + int64_t{chunk} * kChunkBytes, lane);
    __syncthreads();
#pragma unroll
    for (int b = 0; b < kChunkBlocks; ++b) {
      if (chunk * kChunkBlocks + b >= p.num_blocks) break;
      uint32_t a[4];
      w.codes(b, a);
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const auto operand =
            load_as<uint2>(&x[8 * tile + lane / 4][b / 2 * 64 + lane % 4 * 16 + b % 2 * 8]);
        const auto columns = load_as<uint4>(&blocks[b][8 * tile + 2 * (lane % 4)]);
        add_block<kType>(
            w, a, b, operand.x, operand.y,
            {{activation_block(columns.x, columns.y), activation_block(columns.z, columns.w)}},
            acc[tile]);
      }
    }
    if ((chunk + 1) % per_part != 0 && chunk + 1 != p.chunks) continue;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        total[tile][i] += acc[tile][i];
        acc[tile][i] = 0;
      }
    }
  }
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int n = 8 * tile + 2 * (lane % 4) + i % 2;
      const int64_t output = own_group * kGroupOutputs + lane / 4 + i / 2 * 8;
      if (n < slice.num_rows && output < p.outputs) {
        store_output(p, slice.out(n), output, total[tile][i]);
      }
    }
  }
}

template <DType kType>
void run_quant(cudaStream_t stream, const QuantMatmul& params, int64_t slices, int width) {
  // Neighbouring blocks use other rows of the same weights, which are then still in the cache.
  const dim3 grid = grid2(slices, (params.outputs + kGroupOutputs - 1) / kGroupOutputs);
  if (width == kFewRows) {
    HEARTH_LAUNCH(stream, (matmul_quant_kernel<kType, kFewRows / 8>), grid, kParts * kWarp, 0,
                  params);
  } else {
    HEARTH_EXPECT(width == kManyRows, width);
    HEARTH_LAUNCH(stream, (matmul_quant_kernel<kType, kManyRows / 8>), grid, kParts * kWarp, 0,
                  params);
  }
}

template <DType kType>
void run_quant_tiles(cudaStream_t stream, const QuantMatmul& params, int64_t rows) {
  constexpr int kBlockOutputs = kParts * kGroupOutputs;
  const dim3 grid = grid2((rows + kTileRows - 1) / kTileRows,
                          (params.outputs + kBlockOutputs - 1) / kBlockOutputs);
  HEARTH_LAUNCH(stream, matmul_quant_tiles_kernel<kType>, grid, kParts * kWarp, 0, params);
}

/// For the file that compiles a type's kernels.
#define HEARTH_QUANT_KERNELS(type)                                                      \
  template void run_quant<DType::type>(cudaStream_t, const QuantMatmul&, int64_t, int); \
  template void run_quant_tiles<DType::type>(cudaStream_t, const QuantMatmul&, int64_t)

}  // namespace hearth::kernels
