#pragma once
// Activations as matmul's contract has them, into the table's scratch.

#include "kernels/cuda_device.cuh"

namespace hearth::kernels {

/// Quantizes rows of x, from row first_row on, into the scratch from its beginning. There are
/// *count * per_token of them in the step, and at most kQuantRows here.
void quantize_rows(CudaState& state, const int32_t* count, int32_t per_token, RowsView x,
                   int64_t cols, int64_t first_row, int64_t rows);

}  // namespace hearth::kernels
