#include "kernels/cuda/device.cuh"

namespace hearth::kernels {
namespace {

constexpr int kThreads = 256;

/// `ids`: of the expert of each row; null: one bias for all.
__global__ void __launch_bounds__(kThreads)
    add_bias_kernel(const int32_t* count, const float* bias, int cols, const int32_t* ids,
                    int64_t ids_stride, int choices, RowsView out) {
  after_previous_launch();
  const int row = static_cast<int>(blockIdx.x);
  if (row >= *count * choices) return;
  if (ids != nullptr) bias += ids[row / choices * ids_stride + row % choices] * int64_t{cols};
  for (int c = static_cast<int>(threadIdx.x); c < cols; c += kThreads) {
    out.data[row * out.stride + c] += bias[c];
  }
}

}  // namespace

void cuda::add_bias(void* state, const AddBiasArgs& args) {
  const TensorView* ids = args.ids;
  const int choices = ids == nullptr ? 1 : static_cast<int>(ids->cols);
  const int32_t rows = row_bound(*args.batch, Rows::kTokens) * choices;
  if (rows == 0) return;
  HEARTH_LAUNCH(cuda_state(state).stream.get(), add_bias_kernel, rows, kThreads, 0,
                row_count(*args.batch, Rows::kTokens), args.bias->vector,
                static_cast<int>(args.out.cols), ids == nullptr ? nullptr : ids->row<int32_t>(0),
                ids == nullptr ? 0 : ids->row_stride, choices, rows_view(args.out));
}

}  // namespace hearth::kernels
