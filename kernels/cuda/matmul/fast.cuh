#pragma once
// Products under `--numerics fast`: cuBLASLt computes those of many rows, with weights unpacked to
// 16 bits.
//
// The scratch is bounded and allocated when the table is made: a piece of a weight's outputs as
// row-major f16 (bf16 for bf16 weights, and for MXFP4, whose scales exceed f16's range), the rows
// of x in the same type, and the library's workspace.
//   f16   A row of x whose largest magnitude is not in 2^-8 .. 2^15 is scaled by a power of two, so
//         that it neither overflows nor loses precision. bf16 would need no scaling, but its 8 bits
//         round x sixteen times as coarsely as the f16 that these weights have. The row of `out`
//         has the same scale while the product is added to it, and is scaled back afterwards. So
//         rows of ordinary size cost nothing extra, and only `out` is read and written.
//   bf16  x is rounded once (exact numerics use the sum of two bf16).
// Weights beyond f16's range, +-65504, are clamped to it.
//
// cuBLASLt is not used by default, not even with one fixed algorithm per weight. By default a row's
// bits come from one order of sums (eight parts, chunks of 64 or blocks of 32 inputs, scaled), the
// same for 1 row and for 4096, and no cuBLASLt product gives those bits. If only products of many
// rows used it, a prompt's KV would depend on how the prompt was divided into steps.

#include <optional>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/host/weights.h"
#include "kernels/cuda/matmul/fast_shapes.h"

namespace hearth::kernels {

/// Unpacks outputs [first, first + count) of a segment with `cols` inputs into rows of `inputs`
/// elements, with zeros after the last input. `first` is a multiple of 16. Writes exactly `count`
/// rows.
void unpack_weights(cudaStream_t stream, const WeightSegment& segment, int64_t cols, int64_t first,
                    int64_t count, int64_t inputs, void* to);

/// Rows [first_row, first_row + rows) of x as f16 or bf16, and their scales; zeros past *count.
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

/// Before the product: out = residual, in the row's scale. After it: scales `out` back.
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
  /// Returns false and does nothing if the segment's product is left to the other kernels.
  bool run(const WeightSegment& segment, RowsView residual, RowsView out);

 private:
  void convert(LtType type);

  CudaState& state_;
  const MatmulArgs& args_;
  int64_t first_row_;
  int64_t rows_;
  std::optional<LtType> converted_;  ///< type of the rows of x in the scratch
};

}  // namespace hearth::kernels
