#include "kernels/cuda/device.cuh"

namespace hearth::kernels {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    add_scaled_kernel(const int32_t* count, RowsView x, float scale, RowsView gate, int cols,
                      RowsView out) {
  after_previous_launch();
  const int row = static_cast<int>(blockIdx.x);
  if (row >= *count) return;
  if (gate.data != nullptr) {
    const double value = gate.data[row * gate.stride];
    scale *= static_cast<float>(1.0 / (1.0 + exp(-value)));
  }
  const float* in = x.data + row * x.stride;
  float* to = out.data + row * out.stride;
  for (int c = thread_x(); c < cols; c += kThreads) {
    to[c] = fmaf(in[c], scale, to[c]);
  }
}

}  // namespace

void cuda::add_scaled(void* state, const AddScaledArgs& args) {
  const int32_t rows = row_bound(*args.batch, Rows::kTokens);
  if (rows == 0) return;
  HEARTH_LAUNCH(cuda_state(state).stream.get(), add_scaled_kernel, rows, kThreads, 0,
                row_count(*args.batch, Rows::kTokens), rows_view(args.x), args.scale,
                args.gate == nullptr ? RowsView{} : rows_view(*args.gate),
                static_cast<int>(args.out.cols), rows_view(args.out));
}

}  // namespace hearth::kernels
