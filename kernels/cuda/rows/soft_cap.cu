#include "kernels/cuda/device.cuh"

namespace hearth::kernels {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    soft_cap_kernel(const int32_t* count, RowsView x, int cols, float scale, float cap) {
  after_previous_launch();
  const int row = block_x();
  if (row >= *count) return;
  float* to = x.data + row * x.stride;
  const int step = grid_y() * kThreads;
  for (int c = block_y() * kThreads + thread_x(); c < cols; c += step) {
    const float value = to[c] * scale;
    to[c] = cap > 0 ? cap * tanhf(value / cap) : value;
  }
}

}  // namespace

void cuda::soft_cap(void* state, const SoftCapArgs& args) {
  const int32_t rows = row_bound(*args.batch, args.rows);
  const auto cols = static_cast<int>(args.x.cols);
  if (rows == 0) return;
  // Several blocks per row: a row of logits is as wide as the vocabulary.
  const int across = cols <= 64 * kThreads ? (cols + kThreads - 1) / kThreads : 64;
  HEARTH_LAUNCH(cuda_state(state).stream.get(), soft_cap_kernel, grid2(rows, across), kThreads, 0,
                row_count(*args.batch, args.rows), rows_view(args.x), cols, args.scale,
                args.soft_cap);
}

}  // namespace hearth::kernels
