// One block per row, two passes: the mean, then the squares around it. Every thread sums its
// columns in ascending order, then a fixed tree adds the threads' sums, so the sums depend only on
// the values and their number.

#include "kernels/cuda/device.cuh"
#include "kernels/ops/encoder_kernels.h"

namespace hearth::kernels {
namespace {

constexpr int kThreads = 256;

/// Sum over the block, in every thread.
__device__ float block_sum(float value, float* of_warps) {
  const int thread = thread_x();
  value = warp_sum(value);
  if (thread % kWarp == 0) of_warps[thread / kWarp] = value;
  __syncthreads();
  float sum = 0;
  for (int w = 0; w < kThreads / kWarp; ++w) sum += of_warps[w];
  return sum;
}

__global__ void __launch_bounds__(kThreads)
    layer_norm_kernel(const int32_t* count, RowsView x, const float* weight, const float* bias,
                      int cols, float eps, RowsView out) {
  after_previous_launch();
  const int row = block_x();
  if (row >= *count) return;
  const float* in = x.data + row * x.stride;
  float* to = out.data + row * out.stride;
  const int thread = thread_x();
  __shared__ float sums[2][kThreads / kWarp];

  const auto width = static_cast<float>(cols);
  float sum = 0;
  for (int c = thread; c < cols; c += kThreads) sum += in[c];
  const float mean = block_sum(sum, sums[0]) / width;
  sum = 0;
  for (int c = thread; c < cols; c += kThreads) sum = fmaf(in[c] - mean, in[c] - mean, sum);
  const float scale = 1.0f / sqrtf(block_sum(sum, sums[1]) / width + eps);
  for (int c = thread; c < cols; c += kThreads) {
    to[c] = fmaf((in[c] - mean) * scale, weight[c], bias == nullptr ? 0.0f : bias[c]);
  }
}

}  // namespace

void cuda::layer_norm(void* state, const LayerNormArgs& args) {
  const int32_t rows = row_bound(*args.batch, args.rows);
  if (rows == 0) return;
  HEARTH_LAUNCH(cuda_state(state).stream.get(), layer_norm_kernel, rows, kThreads, 0,
                row_count(*args.batch, args.rows), rows_view(args.x), args.weight->vector,
                args.bias == nullptr ? nullptr : args.bias->vector, static_cast<int>(args.x.cols),
                args.eps, rows_view(args.out));
}

}  // namespace hearth::kernels
