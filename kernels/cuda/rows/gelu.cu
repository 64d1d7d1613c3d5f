#include "kernels/cuda/device.cuh"
#include "kernels/ops/encoder_kernels.h"

namespace hearth::kernels {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    gelu_kernel(const int32_t* count, RowsView x, int cols, bool by_tanh) {
  after_previous_launch();
  const int row = block_x();
  if (row >= *count) return;
  float* to = x.data + row * x.stride;
  const int step = grid_y() * kThreads;
  for (int c = block_y() * kThreads + thread_x(); c < cols; c += step) {
    const float v = to[c];
    const float u = 0.79788456080286536f * (v + 0.044715f * v * v * v);  // sqrt(2 / pi)
    to[c] = 0.5f * v * (by_tanh ? 1.0f + tanhf(u) : erfcf(-0.70710678118654752f * v));
  }
}

}  // namespace

void cuda::gelu(void* state, const GeluArgs& args) {
  const int32_t rows = row_bound(*args.batch, Rows::kTokens);
  const auto cols = static_cast<int>(args.x.cols);
  if (rows == 0) return;
  const int across = cols <= 16 * kThreads ? (cols + kThreads - 1) / kThreads : 16;
  HEARTH_LAUNCH(cuda_state(state).stream.get(), gelu_kernel, grid2(rows, across), kThreads, 0,
                row_count(*args.batch, Rows::kTokens), rows_view(args.x), cols, args.by_tanh);
}

}  // namespace hearth::kernels
