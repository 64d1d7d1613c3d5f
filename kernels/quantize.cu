#include "kernels/cuda_layout.cuh"
#include "kernels/quantize.cuh"

namespace hearth::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;

/// One warp per block of 32 inputs, one lane per input.
__global__ void __launch_bounds__(kThreads)
    quantize_kernel(const int32_t* count, RowsView x, int num_blocks, int32_t first_row,
                    int8_t* values, float* scales) {
  const int64_t scratch_row = blockIdx.x;
  const int64_t row = first_row + scratch_row;
  if (row >= *count) return;
  const auto lane = static_cast<int>(threadIdx.x) % kWarp;
  const int step = static_cast<int>(gridDim.y) * kWarps;
  for (int b = static_cast<int>(blockIdx.y) * kWarps + static_cast<int>(threadIdx.x) / kWarp;
       b < num_blocks; b += step) {
    const float value = x.data[row * x.stride + int64_t{b} * kQuantBlock + lane];
    // The magnitude bits order like the magnitudes, with infinity and NaN above all.
    const uint32_t bits = warp_max(__float_as_uint(value) & 0x7fffffffu);
    const float amax = __uint_as_float(bits);
    const bool usable = amax >= kQuantizeMin && bits < 0x7f800000u;
    const float q = usable ? rintf(value * (127.0f / amax)) : 0.0f;
    const int64_t block = scratch_row * num_blocks + b;
    values[block * kQuantBlock + lane] = static_cast<int8_t>(q);
    if (lane == 0) scales[block] = amax / 127.0f;
  }
}

}  // namespace

void quantize_rows(CudaState& state, const int32_t* count, RowsView x, int64_t cols,
                   int32_t first_row, int64_t rows) {
  HEARTH_EXPECT(cols <= state.quant.max_cols && rows <= kQuantRows, cols, rows);
  const int64_t num_blocks = cols / kQuantBlock;
  const int64_t across = num_blocks < 16 * kWarps ? ceil_div(num_blocks, kWarps) : 16;
  HEARTH_LAUNCH(state.stream.get(), quantize_kernel, grid2(rows, across), kThreads, 0, count, x,
                static_cast<int>(num_blocks), first_row,
                static_cast<int8_t*>(state.quant.values.get()),
                static_cast<float*>(state.quant.scales.get()));
}

}  // namespace hearth::kernels
