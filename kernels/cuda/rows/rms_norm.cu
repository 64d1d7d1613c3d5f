// One block per row, or per head if heads are normalized separately; a few rows have several blocks
// each, which all compute the row's sum and then a share of its columns. Every thread sums its
// columns in ascending order, then a fixed tree adds the threads' sums: the sum depends only on the
// values and their number.

#include <algorithm>

#include "kernels/cuda/matmul/quantize.cuh"

namespace hearth::kernels {
namespace {

constexpr int kThreads = 256;
/// So many rows do not fill a device with a block each.
constexpr int kSpreadRows = 32;

__global__ void __launch_bounds__(kThreads)
    rms_norm_kernel(const int32_t* count, RowsView x, const float* weight, int cols, float eps,
                    RowsView out, QuantTarget quantized) {
  const int thread = thread_x();
  const int begin = block_z() * kThreads + thread;
  const int step = grid_z() * kThreads;
  let_next_launch_begin();
  const float first_weight = begin < cols ? weight[begin] : 0.0f;
  wait_for_previous_launch();
  const int row = block_x();
  const int rows = *count;
  const int first = block_y() * cols;
  const float* in = x.data + row * x.stride + first;
  float* to = out.data + row * out.stride + first;

  float sum = 0;
#pragma unroll 16
  for (int c = thread; c < cols; c += kThreads) {
    const float value = in[c];
    sum = fmaf(value, value, sum);
  }
  if (row >= rows) return;  // known when the sum is: the loads did not wait for each other
  sum = warp_sum(sum);
  __shared__ float sums[kThreads / kWarp];
  if (thread % kWarp == 0) sums[thread / kWarp] = sum;
  __syncthreads();
  sum = 0;
  for (int w = 0; w < kThreads / kWarp; ++w) sum += sums[w];

  const float scale = 1.0f / sqrtf(sum / static_cast<float>(cols) + eps);
  for (int c = begin; c < cols; c += step) {
    const float value = in[c] * scale * (c == begin ? first_weight : weight[c]);
    to[c] = value;
    if (quantized.values != nullptr) quantize_value(quantized, row, c, value);
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
  dim3 grid = grid2(rows, heads);
  if (rows <= kSpreadRows && args.out.data != args.x.data) {
    grid.z = static_cast<unsigned>(std::clamp(cols / kThreads, 1, 16));
  }
  HEARTH_LAUNCH(cuda.stream.get(), rms_norm_kernel, grid, kThreads, 0,
                row_count(*args.batch, args.rows), rows_view(args.x), args.weight->vector, cols,
                args.eps, rows_view(args.out), quantized);
}

}  // namespace hearth::kernels
