// The step's table of angles, and the rotation of heads by it.

#include <algorithm>

#include "kernels/cuda/layout.cuh"
#include "kernels/cuda/rows/rotate.cuh"

namespace hearth::kernels {
namespace {

constexpr int kThreads = 128;

__global__ void __launch_bounds__(kThreads)
    rope_table_kernel(const int32_t* count, const int32_t* positions, const float* inv_freq,
                      int num_pairs, float magnitude, RowsView cos_sin) {
  after_previous_launch();
  const int row = block_x();
  if (row >= *count) return;
  float* out = cos_sin.data + row * cos_sin.stride;
  for (int i = thread_x(); i < num_pairs; i += kThreads) {
    // In double: at position 100 000 an f32 angle is off by 0.004.
    const double angle = static_cast<double>(positions[row]) * static_cast<double>(inv_freq[i]);
    out[2 * i] = static_cast<float>(cos(angle) * static_cast<double>(magnitude));
    out[2 * i + 1] = static_cast<float>(sin(angle) * static_cast<double>(magnitude));
  }
}

__global__ void __launch_bounds__(kThreads)
    rope_kernel(const int32_t* count, RowsView x, int num_heads, int head_dim, Rotation rotation) {
  after_previous_launch();
  const int row = block_x();
  if (row >= *count) return;
  rotate_pairs(rotation, row, x.data + row * x.stride, num_heads, head_dim,
               block_y() * kThreads + thread_x(), grid_y() * kThreads);
}

}  // namespace

void cuda::rope_table(void* state, const RopeTableArgs& args) {
  const int32_t rows = row_bound(*args.batch, Rows::kTokens);
  if (rows == 0) return;
  HEARTH_LAUNCH(cuda_state(state).stream.get(), rope_table_kernel, rows, kThreads, 0,
                row_count(*args.batch, Rows::kTokens), args.batch->positions, args.inv_freq->vector,
                static_cast<int>(args.inv_freq->cols), args.magnitude, rows_view(args.cos_sin));
}

void cuda::rope(void* state, const RopeArgs& args) {
  const int32_t rows = row_bound(*args.batch, Rows::kTokens);
  if (rows == 0) return;
  const int64_t pairs = args.num_heads * args.cos_sin.cols / 2;
  const int64_t across = std::clamp<int64_t>(ceil_div(pairs, kThreads), 1, 32);
  HEARTH_LAUNCH(cuda_state(state).stream.get(), rope_kernel, grid2(rows, across), kThreads, 0,
                row_count(*args.batch, Rows::kTokens), rows_view(args.x), args.num_heads,
                args.head_dim, rotation_of(args));
}

}  // namespace hearth::kernels
