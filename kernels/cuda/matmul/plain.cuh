#pragma once

#include "kernels/cuda/matmul/rows.cuh"

namespace hearth::kernels {

/// Arguments of products of f32, f16 and bf16 weights, in panels of 32 outputs or groups of 16.
struct PlainMatmul {
  MatmulRows rows;
  const void* panels;
  int64_t expert_panels;
  int64_t cols;
  int32_t outputs;  ///< of this segment
  int64_t first_x;  ///< row of x where the rows of `rows` start
  RowsView x;
  RowsView residual;  ///< data null: none
  RowsView out;       ///< `out` and `residual` begin at the segment's first output
  bool aligned;       ///< rows of x can be loaded 16 bytes at a time (kernels/cuda/matmul/half.cu)
  GateTail gate;      ///< for f16 and bf16, at most kFewRows rows, not for experts
};

/// Products of f32 weights.
void run_plain(cudaStream_t stream, const PlainMatmul& params, int64_t slices, int width);

}  // namespace hearth::kernels
