#include "kernels/cuda/host/weights.h"
#include "kernels/cuda/matmul/fast_shapes.h"
#include "kernels/cuda/matmul/quantize.cuh"

namespace hearth::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;

struct QuantizeParams {
  const int32_t* count;
  int32_t per_token;
  RowsView x;
  int32_t num_blocks;
  int64_t first_row;
  QuantTarget to;
};

/// One warp per block of 32 inputs, one lane per input.
__global__ void __launch_bounds__(kThreads) quantize_kernel(QuantizeParams p) {
  after_previous_launch();
  const int64_t scratch_row = blockIdx.x;
  const int64_t row = p.first_row + scratch_row;
  if (row >= int64_t{*p.count} * p.per_token) return;
  const auto lane = thread_x() % kWarp;
  const int step = grid_y() * kWarps;
  for (int b = block_y() * kWarps + thread_x() / kWarp; b < p.num_blocks; b += step) {
    quantize_block(p.to, scratch_row, b, p.x.data[row * p.x.stride + int64_t{b} * 32 + lane]);
  }
}

QuantTarget target(CudaState& state, int64_t cols) {
  return {static_cast<int8_t*>(state.quant.values.get()),
          static_cast<ActivationBlock*>(state.quant.blocks.get()),
          static_cast<int32_t>(num_chunks(cols))};
}

bool has_quantized(const CudaWeight& weight) {
  for (const WeightSegment& segment : weight.segments) {
    if (info(segment.dtype).block_elements > 1) return true;
  }
  return false;
}

}  // namespace

void quantize_rows(CudaState& state, const int32_t* count, int32_t per_token, RowsView x,
                   int64_t cols, int64_t first_row, int64_t rows) {
  HEARTH_EXPECT(num_chunks(cols) <= state.quant.max_chunks && rows <= kQuantRows, cols, rows);
  state.quant.held = {};
  const int64_t num_blocks = cols / 32;
  const int64_t across = num_blocks < 16 * kWarps ? (num_blocks + kWarps - 1) / kWarps : 16;
  const QuantizeParams params{count,     per_token,          x, static_cast<int32_t>(num_blocks),
                              first_row, target(state, cols)};
  HEARTH_LAUNCH(state.stream.get(), quantize_kernel, grid2(rows, across), kThreads, 0, params);
}

QuantTarget hold_quantized(CudaState& state, const BatchIndex& batch, Rows rows,
                           const TensorView& out, const Weight* reader) {
  const QuantTarget nowhere{};
  // A hint may point to another table's weight.
  const auto* weight = dynamic_cast<const CudaWeight*>(reader);
  const int64_t bound = row_bound(batch, rows);
  if (weight == nullptr || weight->cols != out.cols || bound > kQuantRows) return nowhere;
  if (!has_quantized(*weight) || num_chunks(out.cols) > state.quant.max_chunks) return nowhere;
  // The product will use 16-bit rows instead.
  const bool fast = state.fast.products != nullptr && !state.capturing && bound > kFastRows;
  if (fast) return nowhere;
  state.quant.held = {out.data, out.row_stride, out.cols, bound, row_count(batch, rows)};
  return target(state, out.cols);
}

bool holds_quantized(const CudaState& state, const BatchIndex& batch, Rows rows,
                     const TensorView& x) {
  const QuantizedRows& held = state.quant.held;
  return held.data != nullptr && held.data == x.data && held.stride == x.row_stride &&
         held.cols == x.cols && held.count == row_count(batch, rows) &&
         row_bound(batch, rows) <= held.rows;
}

void drop_quantized(CudaState& state, const TensorView& written) {
  const auto end = [](const void* data, int64_t rows, int64_t stride, int64_t cols) {
    return static_cast<const float*>(data) + (rows - 1) * stride + cols;
  };
  QuantizedRows& held = state.quant.held;
  if (held.data == nullptr) return;
  const bool before =
      end(written.data, written.rows, written.row_stride, written.cols) <= held.data;
  const bool after = end(held.data, held.rows, held.stride, held.cols) <= written.data;
  if (!before && !after) held = {};
}

}  // namespace hearth::kernels
