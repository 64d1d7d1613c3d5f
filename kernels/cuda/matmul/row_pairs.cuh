#pragma once

#include "kernels/cuda/matmul/rows.cuh"

namespace hearth::kernels {

/// Computes two segments of a product of one row in one launch. False, and nothing is launched,
/// without a kernel for these types together.
bool run_row_pair(cudaStream_t stream, DType first_type, const QuantMatmul& first,
                  DType second_type, const QuantMatmul& second);

}  // namespace hearth::kernels
