#pragma once
// The gated activation of a product's outputs, by the product's own blocks: the one that stores the
// last of the 512 outputs that 256 activations need computes these, and quantizes them for the
// product that reads them. The bits are those of kernels/cuda/rows/gated_activation.cu.

#include "kernels/cuda/arrivals.cuh"
#include "kernels/cuda/matmul/quantize.cuh"
#include "kernels/cuda/matmul/rows.cuh"
#include "kernels/cuda/rows/gated.cuh"

namespace hearth::kernels {

/// By all threads of a block that has stored outputs of its group of kGroupOutputs, of up to
/// `width` rows. Which rows is read again: in registers until here they would be spilled.
template <typename Params>
__device__ void activate_last(const Params& p, int width) {
  const RowSlice slice = slice_of(p.rows, block_x(), width);
  if (slice.num_rows == 0) return;
  const GateTail& gate = p.gate;
  const int first = block_y() * kGroupOutputs;
  const int own = first < gate.width ? first : first - gate.width;
  const int chunk = own / kChunkInputs;
  const int begin = chunk * kChunkInputs;
  const int count = gate.width - begin < kChunkInputs ? gate.width - begin : kChunkInputs;
  if (!arrive_last(gate.arrivals + chunk, 2 * count / kGroupOutputs)) return;
  const int c = begin + thread_x();
  for (int n = 0; n < slice.num_rows; ++n) {
    const int64_t row = slice.out(n);
    if (c >= gate.width) continue;
    const float* in = p.out.data + row * p.out.stride;
    const float value = gated(in[c], in[gate.width + c], gate.activation);
    gate.out.data[row * gate.out.stride + c] = value;
    if (gate.quantized.values != nullptr) quantize_value(gate.quantized, row, c, value);
  }
}

}  // namespace hearth::kernels
