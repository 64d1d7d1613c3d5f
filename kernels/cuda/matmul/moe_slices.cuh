#pragma once

#include "kernels/cuda/matmul/rows.cuh"

namespace hearth::kernels {

/// Sorts the choices of tokens [first, first + count) by expert and divides each expert's choices
/// into slices of `width` rows, in the table's scratch. Sets the choice list and the slices in
/// `rows`. Returns an upper bound of the number of slices: slices past the last one have no rows.
int64_t list_slices(CudaState& state, const MoeMatmulArgs& args, int32_t first, int32_t count,
                    int32_t num_experts, int width, MatmulRows* rows);

}  // namespace hearth::kernels
