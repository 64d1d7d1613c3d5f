// out = x w^T (+ residual) for f32 weights. A block of warps computes one panel of 32 outputs, one
// per lane, and up to 8 rows. Each warp computes one part of the inputs (kParts), in which every
// output is one chain of fma over ascending inputs; the parts are added in ascending order. A warp
// keeps its rows' inputs in shared memory, where all lanes read the same word.

#include "kernels/cuda/layout.cuh"
#include "kernels/cuda/matmul/plain.cuh"

namespace hearth::kernels {
namespace {

constexpr int kLoads = 8;  // shares that a lane loads at a time, with the next 8 in flight

struct Shares {
  Share<float> at[kLoads];

  /// Loads shares of a panel, starting with `first`; past the last one they are zero.
  __device__ void load(const Share<float>* panel, int64_t first, int64_t count) {
#pragma unroll
    for (int s = 0; s < kLoads; ++s) {
      if (first + s < count) {
        at[s] = panel[(first + s) * kPanelOutputs];
      } else {
        at[s] = {};
      }
    }
  }
};

template <int kRows>
__global__ void __launch_bounds__(kParts* kWarp) matmul_plain_kernel(PlainMatmul p) {
  after_previous_launch();
  constexpr int kShare = Share<float>::kCount;
  constexpr int kInputs = kLoads * kShare;
  const RowSlice slice = slice_of(p.rows, block_x(), kRows);
  if (slice.num_rows == 0) return;
  const auto lane = thread_x() % kWarp;
  const auto part = thread_x() / kWarp;
  const int64_t count = num_shares(p.cols, kShare);
  const int64_t panel_index = slice.expert * p.expert_panels + blockIdx.y;
  const Share<float>* panel =
      static_cast<const Share<float>*>(p.panels) + panel_index * count * kPanelOutputs + lane;

  __shared__ float inputs[kParts][kRows][kInputs];
  float acc[kRows] = {};
  const int64_t steps = ceil_div(count, kLoads);
  const int64_t per_part = ceil_div(steps, kParts);
  const int64_t begin = part * per_part;
  const int64_t end = begin + per_part < steps ? begin + per_part : steps;
  Shares next;
  if (begin < end) next.load(panel, begin * kLoads, count);
  for (int64_t step = begin; step < end; ++step) {
    const Shares w = next;
    if (step + 1 < end) next.load(panel, (step + 1) * kLoads, count);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (r >= slice.num_rows) break;
      const float* x = p.x.data + (p.first_x + slice.in(r)) * p.x.stride;
#pragma unroll
      for (int k = lane; k < kInputs; k += kWarp) {
        const int64_t input = step * kInputs + k;
        inputs[part][r][k] = input < p.cols ? x[input] : 0.0f;
      }
    }
    __syncwarp();
#pragma unroll
    for (int s = 0; s < kLoads; ++s) {
#pragma unroll
      for (int i = 0; i < kShare; ++i) {
        const float value = w.at[s].element[i];
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          acc[r] = fmaf(inputs[part][r][s * kShare + i], value, acc[r]);
        }
      }
    }
    __syncwarp();  // the next step overwrites what this one read
  }

  __shared__ float parts[kParts][kRows][kPanelOutputs];
#pragma unroll
  for (int r = 0; r < kRows; ++r) parts[part][r][lane] = acc[r];
  __syncthreads();
  for (int i = thread_x(); i < kRows * kPanelOutputs; i += kParts * kWarp) {
    const int n = i / kPanelOutputs;
    const int64_t output = int64_t{blockIdx.y} * kPanelOutputs + i % kPanelOutputs;
    if (n >= slice.num_rows || output >= p.outputs) continue;
    float sum = 0;
#pragma unroll
    for (int k = 0; k < kParts; ++k) sum += parts[k][n][i % kPanelOutputs];
    const int64_t row = slice.out(n);
    if (p.residual.data != nullptr) sum += p.residual.data[row * p.residual.stride + output];
    p.out.data[row * p.out.stride + output] = sum;
  }
}

}  // namespace

void run_plain(cudaStream_t stream, const PlainMatmul& params, int64_t slices, int width) {
  const dim3 grid = grid2(slices, ceil_div(params.outputs, kPanelOutputs));
  constexpr int kThreads = kParts * kWarp;
  if (width == 1) {
    HEARTH_LAUNCH(stream, matmul_plain_kernel<1>, grid, kThreads, 0, params);
  } else if (width == 4) {
    HEARTH_LAUNCH(stream, matmul_plain_kernel<4>, grid, kThreads, 0, params);
  } else {
    HEARTH_EXPECT(width == kFewRows, width);
    HEARTH_LAUNCH(stream, matmul_plain_kernel<kFewRows>, grid, kThreads, 0, params);
  }
}

}  // namespace hearth::kernels
