#pragma once
// Activations as matmul's contract has them, into the table's scratch: by a launch of their own, or
// in that of the op that computes them.

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/matmul/quant_layout.cuh"

namespace hearth::kernels {

/// Where rows go quantized.
struct QuantTarget {
  int8_t* values;  ///< null: nowhere
  ActivationBlock* blocks;
  int32_t chunks;
};

/// Quantizes a block of 32 inputs of a row: by a whole warp, whose lanes have one each.
__device__ inline void quantize_block(const QuantTarget& to, int64_t row, int64_t block,
                                      float value) {
  const auto lane = static_cast<int>(threadIdx.x) % kWarp;
  // The magnitude bits order like the magnitudes, with infinity and NaN above all.
  const uint32_t bits = warp_max(__float_as_uint(value) & 0x7fffffffu);
  const float amax = __uint_as_float(bits);
  const bool usable = amax >= kQuantizeMin && bits < 0x7f800000u;
  const int q = usable ? static_cast<int>(rintf(value * (127.0f / amax))) : 0;
  int sum = q;  // of each half of the warp
  for (int offset = 8; offset > 0; offset /= 2) sum += __shfl_xor_sync(kAllLanes, sum, offset);
  const int upper = __shfl_sync(kAllLanes, sum, 16);
  to.values[row * to.chunks * kChunkInputs + activation_byte(block * 32 + lane)] =
      static_cast<int8_t>(q);
  if (lane == 0) {
    to.blocks[row * to.chunks * kChunkBlocks + block] = {
        amax / 127.0f, {static_cast<int16_t>(sum), static_cast<int16_t>(upper)}};
  }
}

/// Quantizes rows of x, from row first_row on, into the scratch from its beginning. There are
/// *count * per_token of them in the step, and at most kQuantRows here.
void quantize_rows(CudaState& state, const int32_t* count, int32_t per_token, RowsView x,
                   int64_t cols, int64_t first_row, int64_t rows);

/// For an op that computes `out`: where its rows go quantized as well, and that they are held for
/// `reader`; nowhere if no such product reads them, of rows that fit in one round.
QuantTarget hold_quantized(CudaState& state, const BatchIndex& batch, Rows rows,
                           const TensorView& out, const Weight* reader);
/// Whether the scratch holds these rows.
bool holds_quantized(const CudaState& state, const BatchIndex& batch, Rows rows,
                     const TensorView& x);
/// After a product: they are forgotten where it has written what they were made of.
void drop_quantized(CudaState& state, const TensorView& written);

}  // namespace hearth::kernels
