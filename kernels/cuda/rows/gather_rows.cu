#include "kernels/cuda/device.cuh"

namespace hearth::kernels {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    gather_rows_kernel(const int32_t* count, const int32_t* output_rows, RowsView x, int cols,
                       RowsView out) {
  after_previous_launch();
  const int row = block_x();
  if (row >= *count) return;
  const float* from = x.data + output_rows[row] * x.stride;
  for (int c = thread_x(); c < cols; c += kThreads) {
    out.data[row * out.stride + c] = from[c];
  }
}

}  // namespace

void cuda::gather_rows(void* state, const GatherRowsArgs& args) {
  const int32_t rows = row_bound(*args.batch, Rows::kOutputs);
  if (rows == 0) return;
  HEARTH_LAUNCH(cuda_state(state).stream.get(), gather_rows_kernel, rows, kThreads, 0,
                row_count(*args.batch, Rows::kOutputs), args.batch->output_rows, rows_view(args.x),
                static_cast<int>(args.x.cols), rows_view(args.out));
}

}  // namespace hearth::kernels
