#pragma once
// Quantizes activations as matmul's definition says, into the table's scratch: in a launch of its
// own, or in the launch of the op that computes them.

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/matmul/quant_layout.cuh"

namespace hearth::kernels {

/// Where quantized rows are stored.
struct QuantTarget {
  int8_t* values;  ///< null: not stored
  ActivationBlock* blocks;
  int32_t chunks;
};

/// Quantizes a block of 32 inputs of a row; called by a whole warp, one input per lane.
__device__ inline void quantize_block(const QuantTarget& to, int64_t row, int64_t block,
                                      float value) {
  const auto lane = thread_x() % kWarp;
  // The bits of magnitudes order like the magnitudes, with infinity and NaN above all.
  const uint32_t bits = warp_max(__float_as_uint(value) & 0x7fffffffu);
  const float amax = __uint_as_float(bits);
  const bool usable = amax >= kQuantizeMin && bits < 0x7f800000u;
  const int q = usable ? static_cast<int>(rintf(value * (127.0f / amax))) : 0;
  const int lower = warp_sum(lane < kWarp / 2 ? q : 0);
  const int upper = warp_sum(q) - lower;
  to.values[row * to.chunks * kChunkInputs + activation_byte(block * 32 + lane)] =
      static_cast<int8_t>(q);
  if (lane == 0) {
    to.blocks[row * to.chunks * kChunkBlocks + block] = {
        amax / 127.0f, {static_cast<int16_t>(lower), static_cast<int16_t>(upper)}};
  }
}

/// Quantizes rows of x, starting with first_row, into the scratch from its beginning. The step has
/// *count * per_token rows, of which at most kQuantRows are handled here.
void quantize_rows(CudaState& state, const int32_t* count, int32_t per_token, RowsView x,
                   int64_t cols, int64_t first_row, int64_t rows);

/// For an op that computes `out`: returns where to store its rows quantized as well, and records
/// that the scratch holds them. Returns a null target if `reader` is not a weight that needs them,
/// or if the rows exceed one round.
QuantTarget hold_quantized(CudaState& state, const BatchIndex& batch, Rows rows,
                           const TensorView& out, const Weight* reader);
/// True if the scratch holds these rows.
bool holds_quantized(const CudaState& state, const BatchIndex& batch, Rows rows,
                     const TensorView& x);
/// Called after a product: drops the held rows if the product has overwritten their source.
void drop_quantized(CudaState& state, const TensorView& written);

}  // namespace hearth::kernels
