#include "kernels/cuda/device.cuh"

namespace hearth::kernels {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    add_bias_kernel(const int32_t* count, const float* bias, int cols, RowsView out) {
  const int row = block_x();
  if (row >= *count) return;
  for (int c = thread_x(); c < cols; c += kThreads) {
    out.data[row * out.stride + c] += bias[c];
  }
}

}  // namespace

void cuda::add_bias(void* state, const AddBiasArgs& args) {
  const int32_t rows = row_bound(*args.batch, Rows::kTokens);
  if (rows == 0) return;
  HEARTH_LAUNCH(cuda_state(state).stream.get(), add_bias_kernel, rows, kThreads, 0,
                row_count(*args.batch, Rows::kTokens), args.bias->vector,
                static_cast<int>(args.out.cols), rows_view(args.out));
}

}  // namespace hearth::kernels
