#pragma once
// How `--numerics fast` divides a weight into pieces that fit its scratch, and the algorithms
// needed for them (kernels/cuda/matmul/fast.cuh). Plain arithmetic.

#include <cstdint>

#include "kernels/cuda/host/cublaslt.h"
#include "kernels/cuda/host/state.h"
#include "kernels/ops/dtype.h"

namespace hearth::kernels {

/// cuBLASLt is used above this number of rows, which captured steps never exceed. To be measured on
/// a device.
inline constexpr int64_t kFastRows = 64;

/// Inputs of an unpacked row, rounded up to 16 bytes.
constexpr int64_t fast_inputs(int64_t cols) { return (cols + 7) / 8 * 8; }

/// Most rows in a round, for x with `cols` inputs in a scratch of `bytes`.
constexpr int64_t fast_round_rows(int64_t cols, int64_t bytes) {
  const int64_t most = bytes / (2 * fast_inputs(cols));
  return most > kFastRows && most < kQuantRows ? most : kQuantRows;
}

/// Row counts for which algorithms are chosen; a round uses the smallest one that fits.
inline constexpr int64_t kFastBuckets[] = {128, 256, 512, 1024, kQuantRows};

/// Pieces of a segment's outputs. There are none if the segment is left to the other kernels: f32
/// weights, and rows too wide for the scratch.
struct FastPieces {
  LtType type = LtType::kF16;
  int64_t all_outputs = 0;
  int64_t inputs = 0;
  int64_t outputs = 0;  ///< per piece, except the last
  int64_t count = 0;

  /// Makes each piece fit `bytes`.
  FastPieces(DType dtype, int64_t rows, int64_t cols, int64_t bytes) : all_outputs(rows) {
    const bool bf16 = dtype == DType::kBF16 || dtype == DType::kMXFP4;
    type = bf16 ? LtType::kBF16 : LtType::kF16;
    inputs = fast_inputs(cols);
    constexpr int64_t kMultiple = 128;
    const int64_t most = bytes / (2 * inputs) / kMultiple * kMultiple;
    if (dtype == DType::kF32 || most == 0) return;
    count = (rows + most - 1) / most;
    outputs = ((rows + count - 1) / count + kMultiple - 1) / kMultiple * kMultiple;
    count = (rows + outputs - 1) / outputs;
  }
  /// The shape of piece i for `rows` rows, at most kQuantRows.
  LtShape shape(int64_t i, int64_t rows) const {
    const int64_t left = all_outputs - i * outputs;
    int64_t bucket = kQuantRows;
    for (const int64_t each : kFastBuckets) {
      if (rows <= each && each < bucket) bucket = each;
    }
    return {type, left < outputs ? left : outputs, inputs, bucket};
  }
};

}  // namespace hearth::kernels
