#pragma once
// Products under `--numerics fast`: of many rows by cuBLASLt, with weights unpacked to 16 bits.
//
// What is taken is bounded and taken when the table is made: a piece of a weight's outputs, as
// row-major f16 (bf16 where the weights are, and of MXFP4, whose scales pass f16's ends), the rows
// of x as the same type, and the library's workspace.
//   f16   a row of x whose largest magnitude is not in 2^-8 .. 2^15 is scaled by a power of two, so
//         that it neither overflows nor loses what it has: bf16 would take anything, but its 8 bits
//         round x sixteen times as coarsely as the f16 that these weights have. The row of `out`
//         has the same scale while the product is added to it, and is scaled back behind it: so no
//         row of ordinary size costs anything, and what is read and written is `out` alone.
//   bf16  x is rounded once (the default takes it as the sum of two).
// Weights beyond what f16 holds, +-65504, are taken as that.
//
// cuBLASLt is not used by default, not even with one pinned algorithm per weight: there a row's
// bits are those of one order of sums (eight parts, chunks of 64 or blocks of 32 inputs, scaled),
// the same for 1 row and for 4096, and no cuBLASLt product has those bits. With it for many rows
// alone, a prompt's KV would depend on how it was cut into steps.

#include <optional>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/host/weights.h"
#include "kernels/cuda/matmul/fast_shapes.h"

namespace hearth::kernels {

/// Unpacks outputs [first, first + count) of a segment with `cols` inputs into rows of `inputs`
/// elements, zeros behind the last input. `first` is a multiple of 16, and so many rows are
/// written.
void unpack_weights(cudaStream_t stream, const WeightSegment& segment, int64_t cols, int64_t first,
                    int64_t count, int64_t inputs, void* to);

/// Rows [first_row, first_row + rows) of x as f16 or bf16, and what scales them; zeros past *count.
struct FastRowsParams {
  const int32_t* count;
  RowsView x;
  int64_t cols;
  int64_t inputs;
  int64_t first_row;
  int64_t rows;
  void* values;
  float* scales;
};
void convert_rows(cudaStream_t stream, bool to_f16, const FastRowsParams& params);

/// Before the product: out = residual, in the row's scale. After it: out back from that scale.
struct FastOutParams {
  const int32_t* count;
  const float* scales;
  int64_t first_row;
  int64_t rows;
  int64_t outputs;
  RowsView residual;
  RowsView out;
};
void begin_out(cudaStream_t stream, const FastOutParams& params);
void finish_out(cudaStream_t stream, const FastOutParams& params);

/// One round of one product, segment by segment.
class FastRound {
 public:
  FastRound(CudaState& state, const MatmulArgs& args, int64_t first_row, int64_t rows);
  /// False, and nothing is done, where the segment's product is left to the other kernels.
  bool run(const WeightSegment& segment, RowsView residual, RowsView out);

 private:
  void convert(LtType type);

  CudaState& state_;
  const MatmulArgs& args_;
  int64_t first_row_;
  int64_t rows_;
  std::optional<LtType> converted_;  ///< what the rows of x are in the scratch
};

}  // namespace hearth::kernels
