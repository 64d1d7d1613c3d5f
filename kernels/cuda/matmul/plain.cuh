#pragma once

#include "kernels/cuda/matmul/rows.cuh"

namespace hearth::kernels {

/// What products of f32, f16 and bf16 weights take. Panels of 32 outputs, or groups of 16.
struct PlainMatmul {
  MatmulRows rows;
  const void* panels;
  int64_t expert_panels;
  int64_t cols;
  int32_t outputs;  ///< of this segment
  int64_t first_x;  ///< row of x that `rows` counts from
  RowsView x;
  RowsView residual;  ///< data null: none
  RowsView out;       ///< both begin at the segment's first output
  bool aligned;       ///< rows of x can be loaded 16 bytes at a time (kernels/cuda/matmul/half.cu)
};

/// Products of f32 weights.
void run_plain(cudaStream_t stream, const PlainMatmul& params, int64_t slices, int width);

}  // namespace hearth::kernels
