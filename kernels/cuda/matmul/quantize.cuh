#pragma once
// Quantizes activations as matmul defines it, into the table's scratch: in a launch of its
// own, or in the launch of the op that computes them.

#include <optional>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/matmul/quant_layout.cuh"

namespace hearth::kernels {

/// A number as quantized by the largest magnitude that is quantized with it.
struct Quantizer {
  float amax;
  bool usable;

  __device__ float d() const { return amax / 127.0f; }
  __device__ int operator()(float value) const {
    return usable ? static_cast<int>(rintf(value * (127.0f / amax))) : 0;
  }
};

/// `largest`: the bits of magnitudes order like the magnitudes, with infinity and NaN above all.
__device__ inline Quantizer quantizer_of(uint32_t largest) {
  const float amax = __uint_as_float(largest);
  return {amax, amax >= kQuantizeMin && largest < 0x7f800000u};
}

/// Quantizes a block of 32 inputs of a row; called by a whole warp, one input per lane.
__device__ inline void quantize_block(const QuantTarget& to, int64_t row, int64_t block,
                                      float value) {
  const auto lane = thread_x() % kWarp;
  const Quantizer quantizer = quantizer_of(warp_max(__float_as_uint(value) & 0x7fffffffu));
  const int q = quantizer(value);
  const int lower = warp_sum(lane < kWarp / 2 ? q : 0);
  const int upper = warp_sum(q) - lower;
  to.values[row * to.chunks * kChunkInputs + activation_byte(block * 32 + lane)] =
      static_cast<int8_t>(q);
  if (lane == 0) {
    to.blocks[row * to.chunks * kChunkBlocks + block] = {
        quantizer.d(), {static_cast<int16_t>(lower), static_cast<int16_t>(upper)}};
  }
}

/// Quantizes a chunk of a row with one scale; called by a block of 256 threads, one input each.
__device__ inline void quantize_chunk(const QuantTarget& to, int64_t row, int chunk, float value) {
  constexpr int kWarps = kChunkInputs / kWarp;
  const int lane = thread_x() % kWarp;
  const int b = thread_x() / kWarp;
  __shared__ uint32_t maxima[kWarps];
  __shared__ int sums[kWarps];
  const uint32_t own = warp_max(__float_as_uint(value) & 0x7fffffffu);
  __syncthreads();  // what the chunk before left has been read
  if (lane == 0) maxima[b] = own;
  __syncthreads();
  uint32_t largest = 0;
#pragma unroll
  for (int i = 0; i < kWarps; ++i) largest = maxima[i] > largest ? maxima[i] : largest;
  const Quantizer quantizer = quantizer_of(largest);
  const int q = quantizer(value);
  const int lower = warp_sum(lane < kWarp / 2 ? q : 0);
  const int upper = warp_sum(q) - lower;
  auto* bytes = reinterpret_cast<int8_t*>(to.blocks);
  if (to.form == RowForm::kChunks) {
    const int input = chunk * kChunkInputs + thread_x();
    to.values[row * to.chunks * kChunkInputs + activation_byte(input)] = static_cast<int8_t>(q);
    if (lane == 0) {
      const auto byte = [](int number, int at) {
        return (static_cast<uint32_t>(number) & 0xffu) << 8 * at;
      };
      reinterpret_cast<SuperActivation*>(
          to.blocks)[(row * to.chunks + chunk) * kChunkBlocks + b] = {
          quantizer.d(), byte(low_of_sum(lower), 0) | byte(low_of_sum(upper), 1) |
                             byte(high_of_sum(lower), 2) | byte(high_of_sum(upper), 3)};
    }
    return;
  }
  to.values[operand_byte(row, chunk, to.chunks, kOperandUnits, thread_x() / 16, thread_x() % 16)] =
      static_cast<int8_t>(q);
  if (lane == 0) {
    sums[b] = lower + upper;
    const int64_t low = operand_byte(row, chunk, to.chunks, kSumUnits, 0, 2 * b);
    const int64_t high = operand_byte(row, chunk, to.chunks, kSumUnits, 1, 2 * b);
    bytes[low] = static_cast<int8_t>(low_of_sum(lower));
    bytes[low + 1] = static_cast<int8_t>(low_of_sum(upper));
    bytes[high] = static_cast<int8_t>(high_of_sum(lower));
    bytes[high + 1] = static_cast<int8_t>(high_of_sum(upper));
  }
  __syncthreads();
  if (thread_x() == 0) {
    int sum = 0;
    for (int i = 0; i < kWarps; ++i) sum += sums[i];
    auto* terms = reinterpret_cast<TileTerm*>(bytes + tile_terms_at(to.chunks));
    terms[int64_t{chunk} * kQuantRows + row] = {quantizer.d(), sum};
  }
}

/// Quantizes input c of a row; called by a block of 256 threads, whose inputs are neighbours and
/// begin with a chunk.
__device__ inline void quantize_value(const QuantTarget& to, int64_t row, int c, float value) {
  if (to.form == RowForm::kBlocks) {
    quantize_block(to, row, c / kWarp, value);
  } else {
    quantize_chunk(to, row, c / kChunkInputs, value);
  }
}

/// The form in which a product of this type with so many rows reads x.
RowForm row_form(const CudaState& state, DType dtype, int64_t rows);

/// Quantizes rows of x, starting with first_row, into the scratch from its beginning. The step has
/// *count * per_token rows, of which at most kQuantRows are handled here.
void quantize_rows(CudaState& state, RowForm form, const int32_t* count, int32_t per_token,
                   RowsView x, int64_t cols, int64_t first_row, int64_t rows);

/// For an op that computes `out`: returns where to store its rows quantized as well, and notes
/// that the scratch holds them. Returns a null target if `reader` is not a weight that needs them,
/// or needs them in two forms, or if the rows exceed one round, or that part of the scratch.
QuantTarget hold_quantized(CudaState& state, const BatchIndex& batch, Rows rows,
                           const TensorView& out, const Weight* reader,
                           ScratchPart part = ScratchPart::kMain);
/// Where rows of `cols` inputs are in that part of the scratch.
QuantTarget quant_target(const CudaState& state, HeldRows::Place place, int64_t cols);

}  // namespace hearth::kernels
