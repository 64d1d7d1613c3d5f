// One block per row, or per head if heads are normalized separately. Every thread sums its columns
// in ascending order, then a fixed tree adds the threads' sums: the sum depends only on the values
// and their number.

#include "kernels/cuda/matmul/quantize.cuh"

namespace hearth::kernels {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    rms_norm_kernel(const int32_t* count, RowsView x, const float* weight, int cols, float eps,
                    RowsView out, QuantTarget quantized) {
  const int row = block_x();
  if (row >= *count) return;
  const int first = block_y() * cols;
  const float* in = x.data + row * x.stride + first;
  float* to = out.data + row * out.stride + first;
  const int thread = thread_x();

  float sum = 0;
  for (int c = thread; c < cols; c += kThreads) sum = fmaf(in[c], in[c], sum);
  sum = warp_sum(sum);
  __shared__ float sums[kThreads / kWarp];
  if (thread % kWarp == 0) sums[thread / kWarp] = sum;
  __syncthreads();
  sum = 0;
  for (int w = 0; w < kThreads / kWarp; ++w) sum += sums[w];

  const float scale = 1.0f / sqrtf(sum / static_cast<float>(cols) + eps);
  for (int c = thread; c < cols; c += kThreads) {
    const float value = in[c] * scale * weight[c];
    to[c] = value;
    if (quantized.values != nullptr) quantize_block(quantized, row, c / kWarp, value);
  }
}

}  // namespace

void cuda::rms_norm(void* state, const RmsNormArgs& args) {
  const int32_t rows = row_bound(*args.batch, args.rows);
  if (rows == 0) return;
  const auto cols = static_cast<int>(args.weight->cols);
  const auto heads = static_cast<int>(args.x.cols) / cols;
  CudaState& cuda = cuda_state(state);
  QuantTarget quantized{};
  if (heads == 1) quantized = hold_quantized(cuda, *args.batch, args.rows, args.out, args.reader);
  HEARTH_LAUNCH(cuda.stream.get(), rms_norm_kernel, grid2(rows, heads), kThreads, 0,
                row_count(*args.batch, args.rows), rows_view(args.x), args.weight->vector, cols,
                args.eps, rows_view(args.out), quantized);
}

}  // namespace hearth::kernels
