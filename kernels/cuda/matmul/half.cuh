#pragma once

#include "kernels/cuda/matmul/plain.cuh"

namespace hearth::kernels {

/// Products of f16 and bf16 weights; `slices` slices of `width` rows, 8 or 32.
void run_half(cudaStream_t stream, DType dtype, const PlainMatmul& params, int64_t slices,
              int width);
/// The same for many rows, but not for experts.
void run_half_tiles(cudaStream_t stream, DType dtype, const PlainMatmul& params, int64_t rows);

}  // namespace hearth::kernels
