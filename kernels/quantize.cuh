#pragma once
// Activations to int8, as the contract of MatmulArgs in ops.h has it.

#include "kernels/cuda_device.cuh"

namespace hearth::kernels {

/// Quantizes rows [first_row, first_row + rows) of x, as far as below *count, into the state's
/// scratch from its row 0 on. rows <= kQuantRows.
void quantize_rows(CudaState& state, const int32_t* count, RowsView x, int64_t cols,
                   int32_t first_row, int64_t rows);

}  // namespace hearth::kernels
