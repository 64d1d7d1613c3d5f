// Ops that change a row by its own statistics, one block per row. Every thread sums its columns in
// ascending order, in double, then a fixed tree adds the threads' sums.

#include "kernels/cuda/device.cuh"

namespace hearth::kernels {
namespace {

constexpr int kThreads = 256;

/// Sum over the block, in every thread. Each call needs sums of its own.
__device__ double block_sum(double value, double* of_warps) {
  const int thread = thread_x();
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(kAllLanes, value, offset);
  if (thread % kWarp == 0) of_warps[thread / kWarp] = value;
  __syncthreads();
  double sum = 0;
  for (int w = 0; w < kThreads / kWarp; ++w) sum += of_warps[w];
  return sum;
}

__global__ void __launch_bounds__(kThreads)
    times_rms_kernel(const int32_t* count, RowsView like, int64_t like_cols, double eps, RowsView x,
                     int64_t cols) {
  after_previous_launch();
  const int row = block_x();
  if (row >= *count) return;
  __shared__ double sums[kThreads / kWarp];
  const float* from = like.data + row * like.stride;
  double sum = 0;
  for (int64_t c = thread_x(); c < like_cols; c += kThreads) {
    sum += double{from[c]} * double{from[c]};
  }
  const double rms = sqrt(block_sum(sum, sums) / static_cast<double>(like_cols) + eps);
  float* to = x.data + row * x.stride;
  for (int64_t c = thread_x(); c < cols; c += kThreads) {
    to[c] = static_cast<float>(double{to[c]} * rms);
  }
}

__global__ void __launch_bounds__(kThreads)
    keep_peaks_kernel(const int32_t* count, double deviations, RowsView x, int64_t cols) {
  after_previous_launch();
  const int row = block_x();
  if (row >= *count) return;
  __shared__ double sums[2][kThreads / kWarp];
  float* to = x.data + row * x.stride;
  const auto width = static_cast<double>(cols);
  double sum = 0;
  for (int64_t c = thread_x(); c < cols; c += kThreads) sum += double{to[c]};
  const double mean = block_sum(sum, sums[0]) / width;
  sum = 0;
  for (int64_t c = thread_x(); c < cols; c += kThreads) {
    const double off = double{to[c]} - mean;
    sum += off * off;
  }
  const double cutoff = mean + deviations * sqrt(block_sum(sum, sums[1]) / width);
  for (int64_t c = thread_x(); c < cols; c += kThreads) {
    to[c] = static_cast<float>(fmax(0.0, double{to[c]} - cutoff));
  }
}

}  // namespace

void cuda::times_rms(void* state, const TimesRmsArgs& args) {
  const int32_t rows = row_bound(*args.batch, Rows::kTokens);
  if (rows == 0) return;
  HEARTH_LAUNCH(cuda_state(state).stream.get(), times_rms_kernel, rows, kThreads, 0,
                row_count(*args.batch, Rows::kTokens), rows_view(args.like), args.like.cols,
                double{args.eps}, rows_view(args.x), args.x.cols);
}

void cuda::keep_peaks(void* state, const KeepPeaksArgs& args) {
  const int32_t rows = row_bound(*args.batch, Rows::kTokens);
  if (rows == 0) return;
  HEARTH_LAUNCH(cuda_state(state).stream.get(), keep_peaks_kernel, rows, kThreads, 0,
                row_count(*args.batch, Rows::kTokens), double{args.deviations}, rows_view(args.x),
                args.x.cols);
}

}  // namespace hearth::kernels
