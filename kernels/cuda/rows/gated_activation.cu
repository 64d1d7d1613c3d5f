#include "kernels/cuda/matmul/quantize.cuh"
#include "kernels/cuda/rows/gated.cuh"

namespace hearth::kernels {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    gated_activation_kernel(const int32_t* count, RowsView gate_up, int width,
                            Activation activation, int rows_per_token, RowsView out,
                            QuantTarget quantized) {
  after_previous_launch();
  const int row = block_x();
  if (row >= *count * rows_per_token) return;
  const float* in = gate_up.data + row * gate_up.stride;
  const int step = static_cast<int>(gridDim.y) * kThreads;
  for (int c = static_cast<int>(blockIdx.y) * kThreads + static_cast<int>(threadIdx.x); c < width;
       c += step) {
    const float value = gated(in[c], in[width + c], activation);
    out.data[row * out.stride + c] = value;
    if (quantized.values != nullptr) quantize_value(quantized, row, c, value);
  }
}

}  // namespace

void cuda::gated_activation(void* state, const GatedActivationArgs& args) {
  const int32_t rows = row_bound(*args.batch, Rows::kTokens) * args.rows_per_token;
  const auto width = static_cast<int>(args.out.cols);
  if (rows == 0) return;
  // Several blocks per row: a decode step has few rows and a width of ten thousand and more.
  const int across = width <= 64 * kThreads ? (width + kThreads - 1) / kThreads : 64;
  CudaState& cuda = cuda_state(state);
  QuantTarget quantized{};
  if (args.rows_per_token == 1) {
    quantized = hold_quantized(cuda, *args.batch, Rows::kTokens, args.out, args.reader);
  }
  HEARTH_LAUNCH(cuda.stream.get(), gated_activation_kernel, grid2(rows, across), kThreads, 0,
                row_count(*args.batch, Rows::kTokens), rows_view(args.gate_up), width,
                args.activation, args.rows_per_token, rows_view(args.out), quantized);
}

}  // namespace hearth::kernels
