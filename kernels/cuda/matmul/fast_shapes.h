#pragma once
// How `--numerics fast` cuts a weight into pieces that fit its scratch, and which algorithms that
// wants (kernels/cuda/matmul/fast.cuh). Plain arithmetic.

#include <cstdint>

#include "kernels/cuda/host/cublaslt.h"
#include "kernels/cuda/host/state.h"
#include "kernels/ops/dtype.h"

namespace hearth::kernels {

/// More rows than these are many. To be measured on a device; captured steps have no more.
inline constexpr int64_t kFastRows = 64;

/// Inputs of an unpacked row: 16 bytes at a time.
constexpr int64_t fast_inputs(int64_t cols) { return (cols + 7) / 8 * 8; }

/// Rows that a round takes at most, of x with `cols` inputs in so many bytes.
constexpr int64_t fast_round_rows(int64_t cols, int64_t bytes) {
  const int64_t most = bytes / (2 * fast_inputs(cols));
  return most > kFastRows && most < kQuantRows ? most : kQuantRows;
}

/// Row counts that algorithms are chosen for; a round takes the next one up.
inline constexpr int64_t kFastBuckets[] = {128, 256, 512, 1024, kQuantRows};

/// Pieces of a segment's outputs. None of what keeps to the other kernels: f32 weights, and rows
/// too wide for the scratch.
struct FastPieces {
  LtType type = LtType::kF16;
  int64_t all_outputs = 0;
  int64_t inputs = 0;
  int64_t outputs = 0;  ///< of a piece but the last
  int64_t count = 0;

  /// That fit `bytes`.
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
  /// Of piece i, for so many rows, at most kQuantRows.
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
