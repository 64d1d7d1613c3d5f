#include "kernels/cuda/matmul/quantize.cuh"

namespace hearth::kernels {
namespace {

constexpr int kThreads = 256;

__device__ float activate(float x, Activation activation) {
  if (activation == Activation::kSilu) return x / (1.0f + expf(-x));
  const float u = 0.79788456080286536f * (x + 0.044715f * x * x * x);  // sqrt(2 / pi)
  return 0.5f * x * (1.0f + tanhf(u));
}

__global__ void __launch_bounds__(kThreads)
    gated_activation_kernel(const int32_t* count, RowsView gate_up, int width,
                            Activation activation, int rows_per_token, RowsView out,
                            QuantTarget quantized) {
  const int row = block_x();
  if (row >= *count * rows_per_token) return;
  const float* in = gate_up.data + row * gate_up.stride;
  const int step = grid_y() * kThreads;
  for (int c = block_y() * kThreads + thread_x(); c < width; c += step) {
    const float value = activate(in[c], activation) * in[width + c];
    out.data[row * out.stride + c] = value;
    if (quantized.values != nullptr) quantize_block(quantized, row, c / kWarp, value);
  }
}

}  // namespace

void cuda::gated_activation(void* state, const GatedActivationArgs& args) {
  const int32_t rows = row_bound(*args.batch, Rows::kTokens) * args.rows_per_token;
  const auto width = static_cast<int>(args.out.cols);
  if (rows == 0) return;
  // Several blocks per row: a decode step has few rows and a width of ten thousand and more.
  const int across = width <= 16 * kThreads ? (width + kThreads - 1) / kThreads : 16;
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
