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
// all kernels, so a row's value depends neither on the other rows nor on which kernel ran.
//   matmul_half_kernel         a block of warps computes one group of 16 outputs and up to 32 rows,
//                              one warp per part: for few rows, when the whole device reads
//                              weights, and for experts
//   matmul_half_slices_kernel  the same for 32 outputs and rows that were rounded before
//                              (kernels/cuda/matmul/half_slices.cuh)
//   matmul_half_tiles_kernel   a block computes 128 outputs and 128 (64) such rows
//                              (kernels/cuda/matmul/half_tiles.cuh)
//   matmul_half_wide_kernel    a block computes 128 outputs and 256 or 128 (128) such rows, with
//                              wgmma (kernels/cuda/matmul/half_wide.cuh)

#include "kernels/cuda/matmul/gate_tail.cuh"
#include "kernels/cuda/matmul/half.cuh"
#include "kernels/cuda/matmul/half_operands.cuh"
#include "kernels/cuda/matmul/half_slices.cuh"
#include "kernels/cuda/matmul/half_tiles.cuh"
#include "kernels/cuda/matmul/half_wide.cuh"

namespace hearth::kernels {
namespace {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1200
constexpr int kLeastBlocks = 1;  // of a multiprocessor: without it the compiler spills there
#else
constexpr int kLeastBlocks = 0;  // as the compiler chooses
#endif

template <typename T, int kTiles>
__global__ void __launch_bounds__(kParts* kWarp, kLeastBlocks) matmul_half_kernel(PlainMatmul p) {
  constexpr int kRows = 8 * kTiles;
  const auto lane = thread_x() % kWarp;
  const auto part = thread_x() / kWarp;
  const auto chunks = static_cast<int>(half_chunks(p.cols));
  const int begin = part_begin(chunks, part);
  const int end = part_begin(chunks, part + 1);
  constexpr int kAhead = 2;  // chunks in flight
  ChunkWeights next[kAhead];
  const auto group_of = [&](int32_t expert) {
    return static_cast<const uint4*>(p.panels) +
           (expert * p.expert_panels + blockIdx.y) * chunks * kChunkLoads + lane;
  };
  const auto load_first = [&](const uint4* group) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (begin + i < end) next[i].load(group + int64_t{begin + i} * kChunkLoads);
    }
  };
  // Which expert's weights are read is a result of an earlier launch.
  const bool known = p.rows.slices == nullptr;
  let_next_launch_begin();
  if (known) load_first(group_of(0));
  wait_for_previous_launch();
  const RowSlice slice = slice_of(p.rows, block_x(), kRows);
  if (slice.num_rows == 0) return;
  const uint4* group = group_of(slice.expert);
  if (!known) load_first(group);

  // Rows past the slice repeat the last one: they are computed and dropped.
  const float* x[kTiles];
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    const int n = 8 * tile + lane / 4;
    x[tile] =
        p.x.data + (p.first_x + slice.in(n < slice.num_rows ? n : slice.num_rows - 1)) * p.x.stride;
  }

  float acc[kTiles][4] = {};
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
  if constexpr (kRows == kFewRows) {
    if (p.gate.arrivals != nullptr) activate_last(p, kFewRows);
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
    HEARTH_LAUNCH_AFTER(stream, (matmul_half_kernel<T, kManyRows / 8>), grid, kThreads, 0, params);
  }
}

template <typename T>
void run_rounded_type(CudaState& state, const PlainMatmul& params, int64_t rows,
                      std::optional<RoundedForm>* rounded) {
  cudaStream_t stream = state.stream.get();
  const RowRounding<T> rounding(state, params, rows, kMostWideRows<T>);
  if (state.wgmma && rows >= kWideFrom) {
    rounding.template for_each<RowOrder::kTiles>(
        rounded, [&](const PlainMatmul& p, const RoundedRows<T>& x, int64_t count) {
          run_half_wide<T>(stream, p, x, count);
        });
    return;
  }
  const auto run = [&](const PlainMatmul& p, const RoundedRows<T>& x, int64_t count) {
    if (rows <= kManyRows) {
      const dim3 grid = grid2(ceil_div(count, 8 * kHalfSliceTiles<T>),
                              ceil_div(params.outputs, kHalfSliceOutputs));
      HEARTH_LAUNCH_AFTER(stream, matmul_half_slices_kernel<T>, grid, kParts * kWarp, 0, p, x);
    } else {
      const dim3 grid = grid2(ceil_div(count, kBlockRows<T>),
                              ceil_div(params.outputs, kBlockGroups * kHalfOutputs));
      HEARTH_LAUNCH_AFTER(stream, matmul_half_tiles_kernel<T>, grid, kParts * kWarp, 0, p, x);
    }
  };
  rounding.template for_each<RowOrder::kLanes>(rounded, run);
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

void run_half_rounded(CudaState& state, DType dtype, const PlainMatmul& params, int64_t rows,
                      std::optional<RoundedForm>* rounded) {
  HEARTH_EXPECT(dtype == DType::kF16 || dtype == DType::kBF16, static_cast<int>(dtype));
  const PlainMatmul p = with_alignment(params);
  dtype == DType::kF16 ? run_rounded_type<Half>(state, p, rows, rounded)
                       : run_rounded_type<BFloat16>(state, p, rows, rounded);
}

}  // namespace hearth::kernels
