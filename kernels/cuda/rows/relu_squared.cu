#include "kernels/cuda/device.cuh"
#include "kernels/ops/encoder_kernels.h"

namespace hearth::kernels {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    relu_squared_kernel(const int32_t* count, RowsView x, int64_t cols, int rows_per_token) {
  after_previous_launch();
  const int row = block_x();
  if (row >= *count * rows_per_token) return;
  float* to = x.data + row * x.stride;
  const int step = grid_y() * kThreads;
  for (int64_t c = block_y() * kThreads + thread_x(); c < cols; c += step) {
    to[c] = to[c] > 0 ? to[c] * to[c] : 0.0f;
  }
}

}  // namespace

void cuda::relu_squared(void* state, const ReluSquaredArgs& args) {
  const int32_t rows = row_bound(*args.batch, Rows::kTokens) * args.rows_per_token;
  if (rows == 0) return;
  const int64_t cols = args.x.cols;
  const int64_t across = cols <= 16 * kThreads ? (cols + kThreads - 1) / kThreads : 16;
  HEARTH_LAUNCH(cuda_state(state).stream.get(), relu_squared_kernel, grid2(rows, across), kThreads,
                0, row_count(*args.batch, Rows::kTokens), rows_view(args.x), cols,
                args.rows_per_token);
}

}  // namespace hearth::kernels
