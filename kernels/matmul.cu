// out = x w^T (+ residual). One lane per output, one warp per panel of 32 outputs, four panels and
// kRows rows of x per block. Each output element is one chain of fma over ascending inputs, so its
// value depends neither on kRows nor on how a step's rows are cut. The inputs of the block's rows
// are staged in shared memory, where all lanes read the same word.

#include "kernels/cuda_device.cuh"
#include "kernels/cuda_layout.cuh"
#include "kernels/cuda_weights.h"
#include "kernels/quantize.cuh"

namespace hearth::kernels {
namespace {

constexpr int kPanels = 4;  // per block
constexpr int kThreads = kPanels * kWarp;

struct MatmulParams {
  const int32_t* count;
  int32_t first_row;  // rows of x from here on: more than kQuantRows take several launches
  const void* panels;
  int64_t cols;
  int64_t outputs;  // of this segment
  RowsView x;
  RowsView residual;        // data null: none
  RowsView out;             // residual and out begin at the segment's first output
  const int8_t* quantized;  // (kQuantRows, cols)
  const float* scales;      // (kQuantRows, cols / 32)
};

/// The output that this lane computes; past the last one in a last panel that is not full.
__device__ int64_t output_of_lane() {
  return static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x;
}

template <int kRows>
__device__ void store(const MatmulParams& p, int first_row, int num_rows, const float* acc) {
  const int64_t output = output_of_lane();
  if (output >= p.outputs) return;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (r >= num_rows) return;
    const int64_t row = first_row + r;
    const float* residual =
        p.residual.data == nullptr ? nullptr : p.residual.data + row * p.residual.stride + output;
    p.out.data[row * p.out.stride + output] = residual == nullptr ? acc[r] : acc[r] + *residual;
  }
}

constexpr int kInputs = 256;  // of each row in shared memory at a time

template <typename T, int kRows>
__global__ void __launch_bounds__(kThreads) matmul_plain_kernel(MatmulParams p) {
  constexpr int kShare = Share<T>::kCount;
  const int first_row = p.first_row + static_cast<int>(blockIdx.x) * kRows;
  const int left = *p.count - first_row;
  if (left <= 0) return;
  const int num_rows = left < kRows ? left : kRows;
  // A warp past the last panel reads the last panel again: it must reach the barriers.
  const int64_t last_panel = (p.outputs - 1) / kPanelOutputs;
  const int64_t panel = output_of_lane() / kPanelOutputs;
  const auto lane = static_cast<int>(threadIdx.x) % kWarp;
  const Share<T>* shares =
      static_cast<const Share<T>*>(p.panels) +
      (panel < last_panel ? panel : last_panel) * num_shares(p.cols, kShare) * kPanelOutputs + lane;

  __shared__ __align__(16) float x[kRows][kInputs];
  float acc[kRows] = {};
  for (int64_t start = 0; start < p.cols; start += kInputs) {
    const auto inputs = static_cast<int>(p.cols - start < kInputs ? p.cols - start : kInputs);
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < kRows * kInputs; i += kThreads) {
      const int r = i / kInputs;
      const int k = i % kInputs;
      const bool there = r < num_rows && k < inputs;
      x[r][k] = there ? p.x.data[(first_row + r) * p.x.stride + start + k] : 0.0f;
    }
    __syncthreads();
    const Share<T>* at = shares + start / kShare * kPanelOutputs;
    const int whole = inputs / kShare;
#pragma unroll 4
    for (int s = 0; s < whole; ++s) {
      const Share<T> w = at[s * kPanelOutputs];
#pragma unroll
      for (int i = 0; i < kShare; ++i) {
        const float value = to_float(w.element[i]);
#pragma unroll
        for (int r = 0; r < kRows; ++r) acc[r] = fmaf(x[r][s * kShare + i], value, acc[r]);
      }
    }
    for (int k = whole * kShare; k < inputs; ++k) {  // the padding of a last share is not read
      const float value = to_float(at[whole * kPanelOutputs].element[k % kShare]);
#pragma unroll
      for (int r = 0; r < kRows; ++r) acc[r] = fmaf(x[r][k], value, acc[r]);
    }
  }
  store<kRows>(p, first_row, num_rows, acc);
}

constexpr int kBlocks = 16;  // of 32 inputs of each row in shared memory at a time

template <int kRows>
__global__ void __launch_bounds__(kThreads) matmul_q8_kernel(MatmulParams p) {
  const int first_row = p.first_row + static_cast<int>(blockIdx.x) * kRows;
  const int left = *p.count - first_row;
  if (left <= 0) return;
  const int num_rows = left < kRows ? left : kRows;
  const int64_t last_panel = (p.outputs - 1) / kPanelOutputs;
  const int64_t panel = output_of_lane() / kPanelOutputs;
  const auto lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t num_blocks = p.cols / kQuantBlock;
  const std::byte* data = static_cast<const std::byte*>(p.panels) +
                          (panel < last_panel ? panel : last_panel) * num_blocks * kQuantPanelBytes;

  __shared__ __align__(16) int x[kRows][kBlocks][kQuantBlock / 4];
  __shared__ float scale[kRows][kBlocks];
  const int64_t scratch_row = first_row - p.first_row;
  float acc[kRows] = {};
  for (int64_t start = 0; start < num_blocks; start += kBlocks) {
    const auto blocks =
        static_cast<int>(num_blocks - start < kBlocks ? num_blocks - start : kBlocks);
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < kRows * kBlocks * kQuantBlock / 4;
         i += kThreads) {
      const int r = i / (kBlocks * kQuantBlock / 4);
      const int b = i / (kQuantBlock / 4) % kBlocks;
      const int word = i % (kQuantBlock / 4);
      if (r >= num_rows || b >= blocks) continue;
      const int64_t block = (scratch_row + r) * num_blocks + start + b;
      x[r][b][word] = reinterpret_cast<const int*>(p.quantized + block * kQuantBlock)[word];
      if (word == 0) scale[r][b] = p.scales[block];
    }
    __syncthreads();
    for (int b = 0; b < blocks; ++b) {
      const std::byte* block = data + (start + b) * kQuantPanelBytes;
      const int4 low = *reinterpret_cast<const int4*>(block + quant_value_offset(lane, 0));
      const int4 high =
          *reinterpret_cast<const int4*>(block + quant_value_offset(lane, kShareBytes));
      const float d = to_float(*reinterpret_cast<const Half*>(block + quant_scale_offset(lane)));
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        if (r >= num_rows) break;
        const int* q = x[r][b];
        int dot = __dp4a(low.x, q[0], 0);
        dot = __dp4a(low.y, q[1], dot);
        dot = __dp4a(low.z, q[2], dot);
        dot = __dp4a(low.w, q[3], dot);
        dot = __dp4a(high.x, q[4], dot);
        dot = __dp4a(high.y, q[5], dot);
        dot = __dp4a(high.z, q[6], dot);
        dot = __dp4a(high.w, q[7], dot);
        acc[r] = fmaf(static_cast<float>(dot), scale[r][b] * d, acc[r]);
      }
    }
  }
  store<kRows>(p, first_row, num_rows, acc);
}

/// Launches `rows` rows from params.first_row on.
template <int kRows>
void launch_rows(cudaStream_t stream, DType dtype, const MatmulParams& params, int64_t rows) {
  // Neighbouring blocks take other rows of the same panels, which the cache then still holds.
  const dim3 grid = grid2(ceil_div(rows, kRows), ceil_div(params.outputs, kThreads));
  switch (dtype) {
    case DType::kF32:
      HEARTH_LAUNCH(stream, (matmul_plain_kernel<float, kRows>), grid, kThreads, 0, params);
      break;
    case DType::kF16:
      HEARTH_LAUNCH(stream, (matmul_plain_kernel<Half, kRows>), grid, kThreads, 0, params);
      break;
    case DType::kBF16:
      HEARTH_LAUNCH(stream, (matmul_plain_kernel<BFloat16, kRows>), grid, kThreads, 0, params);
      break;
    case DType::kQ8_0:
      HEARTH_LAUNCH(stream, matmul_q8_kernel<kRows>, grid, kThreads, 0, params);
      break;
    default: HEARTH_EXPECT(false, static_cast<int>(dtype));
  }
}

/// The widest kernel that the rows fill; the choice does not change a bit.
void launch_segment(cudaStream_t stream, DType dtype, const MatmulParams& params, int64_t rows) {
  if (rows == 1) {
    launch_rows<1>(stream, dtype, params, rows);
  } else if (rows <= 4) {
    launch_rows<4>(stream, dtype, params, rows);
  } else {
    launch_rows<8>(stream, dtype, params, rows);
  }
}

RowsView from_output(const TensorView& view, int64_t output) {
  RowsView rows = rows_view(view);
  rows.data += output;
  return rows;
}

}  // namespace

void cuda::matmul(void* opaque, const MatmulArgs& args) {
  CudaState& state = cuda_state(opaque);
  cudaStream_t stream = state.stream.get();
  const auto& weight = static_cast<const CudaWeight&>(*args.w);
  const int64_t rows = row_bound(*args.batch, args.rows);
  // The scratch of quantized activations bounds the rows of a round.
  for (int64_t first = 0; first < rows; first += kQuantRows) {
    const int64_t count = rows - first < kQuantRows ? rows - first : kQuantRows;
    bool quantized = false;
    for (const WeightSegment& segment : weight.segments) {
      MatmulParams params{};
      params.count = row_count(*args.batch, args.rows);
      params.first_row = static_cast<int32_t>(first);
      params.panels = segment.data.get();
      params.cols = weight.cols;
      params.outputs = segment.rows;
      params.x = rows_view(args.x);
      params.out = from_output(args.out, segment.first_row);
      if (args.residual != nullptr) {
        params.residual = from_output(*args.residual, segment.first_row);
      }
      if (segment.dtype == DType::kQ8_0) {
        params.quantized = static_cast<const int8_t*>(state.quant.values.get());
        params.scales = static_cast<const float*>(state.quant.scales.get());
        if (!quantized) {
          quantize_rows(state, params.count, params.x, weight.cols, params.first_row, count);
          quantized = true;
        }
      }
      launch_segment(stream, segment.dtype, params, count);
    }
  }
}

}  // namespace hearth::kernels
