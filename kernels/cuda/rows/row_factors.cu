// Rows times a factor of their position, and times the sigmoid of a gate.

#include "kernels/cuda/device.cuh"
#include "kernels/ops/encoder_kernels.h"

namespace hearth::kernels {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    scale_by_position_kernel(const int32_t* count, const int32_t* positions, RowsView x,
                             int64_t cols, float scale, int32_t length) {
  after_previous_launch();
  const int row = block_x();
  if (row >= *count) return;
  const double lengths = positions[row] / length;
  if (lengths == 0) return;
  const auto factor = static_cast<float>(1.0 + scale * log1p(lengths));
  float* to = x.data + row * x.stride;
  const int step = grid_y() * kThreads;
  for (int64_t c = block_y() * kThreads + thread_x(); c < cols; c += step) to[c] *= factor;
}

__global__ void __launch_bounds__(kThreads)
    sigmoid_gate_kernel(const int32_t* count, RowsView x, RowsView gate, int64_t cols, bool alone) {
  after_previous_launch();
  const int row = block_x();
  if (row >= *count) return;
  float* to = x.data + row * x.stride;
  const float* by = gate.data + row * gate.stride;
  const int step = grid_y() * kThreads;
  for (int64_t c = block_y() * kThreads + thread_x(); c < cols; c += step) {
    to[c] = (alone ? 1.0f : to[c]) / (1.0f + expf(-by[c]));
  }
}

int64_t blocks_across(int64_t cols) {
  return cols <= 16 * kThreads ? (cols + kThreads - 1) / kThreads : 16;
}

}  // namespace

void cuda::scale_by_position(void* state, const ScaleByPositionArgs& args) {
  const int32_t rows = row_bound(*args.batch, Rows::kTokens);
  if (rows == 0) return;
  HEARTH_LAUNCH(cuda_state(state).stream.get(), scale_by_position_kernel,
                grid2(rows, blocks_across(args.x.cols)), kThreads, 0,
                row_count(*args.batch, Rows::kTokens), args.batch->positions, rows_view(args.x),
                args.x.cols, args.scale, args.length);
}

void cuda::sigmoid_gate(void* state, const SigmoidGateArgs& args) {
  const int32_t rows = row_bound(*args.batch, Rows::kTokens);
  if (rows == 0) return;
  HEARTH_LAUNCH(cuda_state(state).stream.get(), sigmoid_gate_kernel,
                grid2(rows, blocks_across(args.x.cols)), kThreads, 0,
                row_count(*args.batch, Rows::kTokens), rows_view(args.x), rows_view(args.gate),
                args.x.cols, args.alone);
}

}  // namespace hearth::kernels
