#include "kernels/cuda_quant.cuh"
#include "kernels/quantize.cuh"

namespace hearth::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;

struct QuantizeParams {
  const int32_t* count;
  int32_t per_token;
  RowsView x;
  int32_t num_blocks;
  int32_t chunks;
  int64_t first_row;
  int8_t* values;
  ActivationBlock* blocks;
};

/// One warp per block of 32 inputs, one lane per input.
__global__ void __launch_bounds__(kThreads) quantize_kernel(QuantizeParams p) {
  const int64_t scratch_row = blockIdx.x;
  const int64_t row = p.first_row + scratch_row;
  if (row >= int64_t{*p.count} * p.per_token) return;
  const auto lane = static_cast<int>(threadIdx.x) % kWarp;
  const int step = static_cast<int>(gridDim.y) * kWarps;
  for (int b = static_cast<int>(blockIdx.y) * kWarps + static_cast<int>(threadIdx.x) / kWarp;
       b < p.num_blocks; b += step) {
    const float value = p.x.data[row * p.x.stride + int64_t{b} * 32 + lane];
    // The magnitude bits order like the magnitudes, with infinity and NaN above all.
    const uint32_t bits = warp_max(__float_as_uint(value) & 0x7fffffffu);
    const float amax = __uint_as_float(bits);
    const bool usable = amax >= kQuantizeMin && bits < 0x7f800000u;
    const int q = usable ? static_cast<int>(rintf(value * (127.0f / amax))) : 0;
    int sum = q;  // of each half of the warp
    for (int offset = 8; offset > 0; offset /= 2) sum += __shfl_xor_sync(kAllLanes, sum, offset);
    const int upper = __shfl_sync(kAllLanes, sum, 16);
    p.values[scratch_row * p.chunks * kChunkInputs + activation_byte(int64_t{b} * 32 + lane)] =
        static_cast<int8_t>(q);
    if (lane == 0) {
      p.blocks[scratch_row * p.chunks * kChunkBlocks + b] = {
          amax / 127.0f, {static_cast<int16_t>(sum), static_cast<int16_t>(upper)}};
    }
  }
}

}  // namespace

void quantize_rows(CudaState& state, const int32_t* count, int32_t per_token, RowsView x,
                   int64_t cols, int64_t first_row, int64_t rows) {
  const int64_t chunks = num_chunks(cols);
  HEARTH_EXPECT(chunks <= state.quant.max_chunks && rows <= kQuantRows, cols, rows);
  const int64_t num_blocks = cols / 32;
  const int64_t across = num_blocks < 16 * kWarps ? (num_blocks + kWarps - 1) / kWarps : 16;
  const QuantizeParams params{count,
                              per_token,
                              x,
                              static_cast<int32_t>(num_blocks),
                              static_cast<int32_t>(chunks),
                              first_row,
                              static_cast<int8_t*>(state.quant.values.get()),
                              static_cast<ActivationBlock*>(state.quant.blocks.get())};
  HEARTH_LAUNCH(state.stream.get(), quantize_kernel, grid2(rows, across), kThreads, 0, params);
}

}  // namespace hearth::kernels
