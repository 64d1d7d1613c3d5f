// The rows of a product under `--numerics fast`, and the product (kernels/cuda/matmul/fast.cuh).

#include "kernels/cuda/layout.cuh"
#include "kernels/cuda/matmul/fast.cuh"
#include "kernels/cuda/terms.cuh"

namespace hearth::kernels {
namespace {

constexpr int kThreads = 256;

/// Returns 1 if the largest magnitude, given as a float's bits, is of ordinary size; else the
/// factor that brings it to 2^14 .. 2^15. At most 2^64, because `out` has that scale during the
/// product.
__device__ float row_scale(uint32_t magnitude) {
  const uint32_t exponent = magnitude >> 23;
  if (magnitude == 0 || (exponent >= 127 - 8 && exponent < 127 + 15)) return 1.0f;
  const float scale = into_half(magnitude).scale;
  return scale < 0x1p64f ? scale : 0x1p64f;
}

template <typename T>
__global__ void __launch_bounds__(kThreads) convert_kernel(FastRowsParams p) {
  after_previous_launch();
  const int64_t row = blockIdx.x;
  const bool used = p.first_row + row < *p.count;
  const float* x = p.x.data + (p.first_row + row) * p.x.stride;
  const auto thread = thread_x();
  float scale = 1.0f;
  if constexpr (std::is_same_v<T, Half>) {
    uint32_t most = 0;
    for (int64_t c = thread; used && c < p.cols; c += kThreads) {
      const uint32_t bits = __float_as_uint(x[c]) & 0x7fffffffu;
      most = bits > most ? bits : most;
    }
    most = warp_max(most);
    __shared__ uint32_t of_warps[kThreads / kWarp];
    if (thread % kWarp == 0) of_warps[thread / kWarp] = most;
    __syncthreads();
    for (int w = 0; w < kThreads / kWarp; ++w) most = of_warps[w] > most ? of_warps[w] : most;
    scale = row_scale(most);
  }
  if (thread == 0) p.scales[row] = scale;
  auto* to = static_cast<uint32_t*>(p.values) + row * (p.inputs / 2);
  for (int64_t pair = thread; pair < p.inputs / 2; pair += kThreads) {
    uint32_t bits = 0;
    for (int i = 0; i < 2; ++i) {
      const int64_t c = 2 * pair + i;
      T value;
      from_float(used && c < p.cols ? x[c] * scale : 0.0f, &value);
      bits |= static_cast<uint32_t>(bits_of(value)) << 16 * i;
    }
    to[pair] = bits;
  }
}

__global__ void __launch_bounds__(kThreads) begin_kernel(FastOutParams p) {
  after_previous_launch();
  const int64_t row = p.first_row + blockIdx.x;
  if (row >= *p.count) return;
  const float scale = p.scales[blockIdx.x];
  const float* from = p.residual.data + row * p.residual.stride;
  float* to = p.out.data + row * p.out.stride;
  if (from == to && scale == 1.0f) return;
  for (int64_t c = threadIdx.x; c < p.outputs; c += kThreads) to[c] = from[c] * scale;
}

__global__ void __launch_bounds__(kThreads) finish_kernel(FastOutParams p) {
  after_previous_launch();
  const int64_t row = p.first_row + blockIdx.x;
  const float scale = p.scales[blockIdx.x];
  if (row >= *p.count || scale == 1.0f) return;
  float* to = p.out.data + row * p.out.stride;
  for (int64_t c = threadIdx.x; c < p.outputs; c += kThreads) to[c] *= 1.0f / scale;
}

bool aligned(RowsView view) {
  return reinterpret_cast<uintptr_t>(view.data) % 16 == 0 && view.stride % 4 == 0;
}

}  // namespace

void convert_rows(cudaStream_t stream, bool to_f16, const FastRowsParams& params) {
  const auto rows = static_cast<unsigned>(params.rows);
  if (to_f16) {
    HEARTH_LAUNCH(stream, convert_kernel<Half>, rows, kThreads, 0, params);
  } else {
    HEARTH_LAUNCH(stream, convert_kernel<BFloat16>, rows, kThreads, 0, params);
  }
}

void begin_out(cudaStream_t stream, const FastOutParams& params) {
  HEARTH_LAUNCH(stream, begin_kernel, static_cast<unsigned>(params.rows), kThreads, 0, params);
}

void finish_out(cudaStream_t stream, const FastOutParams& params) {
  HEARTH_LAUNCH(stream, finish_kernel, static_cast<unsigned>(params.rows), kThreads, 0, params);
}

FastRound::FastRound(CudaState& state, const MatmulArgs& args, int64_t first_row, int64_t rows)
    : state_(state), args_(args), first_row_(first_row), rows_(rows) {}

void FastRound::convert(LtType type) {
  if (converted_ == type) return;
  converted_ = type;
  const FastRowsParams params{row_count(*args_.batch, args_.rows),
                              rows_view(args_.x),
                              args_.w->cols,
                              fast_inputs(args_.w->cols),
                              first_row_,
                              rows_,
                              state_.fast.rows.get(),
                              static_cast<float*>(state_.fast.scales.get())};
  convert_rows(state_.stream.get(), type == LtType::kF16, params);
}

bool FastRound::run(const WeightSegment& segment, RowsView residual, RowsView out) {
  // Not in a captured step: its kernels must be loaded already, and its row count may change.
  if (state_.fast.products == nullptr || state_.capturing || rows_ <= kFastRows || !aligned(out)) {
    return false;
  }
  const LtProducts& products = *state_.fast.products;
  const FastPieces pieces(segment.dtype, segment.rows, args_.w->cols, state_.fast.weight_bytes);
  if (rows_ * pieces.inputs * 2 > state_.fast.row_bytes) return false;
  for (int64_t i = 0; i < pieces.count; ++i) {
    if (!products.can_run(pieces.shape(i, rows_))) return false;
  }
  if (pieces.count == 0) return false;

  cudaStream_t stream = state_.stream.get();
  const bool to_f16 = pieces.type == LtType::kF16;
  convert(pieces.type);
  const FastOutParams rows{row_count(*args_.batch, args_.rows),
                           static_cast<const float*>(state_.fast.scales.get()),
                           first_row_,
                           rows_,
                           segment.rows,
                           residual,
                           out};
  const bool add = residual.data != nullptr;
  if (add && (to_f16 || residual.data != out.data)) begin_out(stream, rows);
  for (int64_t i = 0; i < pieces.count; ++i) {
    const int64_t first = i * pieces.outputs;
    const LtShape shape = pieces.shape(i, rows_);
    unpack_weights(stream, segment, args_.w->cols, first, shape.outputs, shape.inputs,
                   state_.fast.weights.get());
    LtProduct product;
    product.weights = state_.fast.weights.get();
    product.x = state_.fast.rows.get();
    product.rows = rows_;
    product.out = out.data + first_row_ * out.stride + first;
    product.out_stride = out.stride;
    product.add = add;
    product.workspace = state_.fast.workspace.get();
    product.workspace_bytes = static_cast<size_t>(kFastWorkspaceBytes);
    product.stream = stream;
    products.run(shape, product);
  }
  if (to_f16) finish_out(stream, rows);
  return true;
}

}  // namespace hearth::kernels
