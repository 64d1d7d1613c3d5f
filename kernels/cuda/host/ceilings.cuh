#pragma once

#include <cuda_runtime.h>

#include <cstddef>

namespace hearth::kernels {

/// Reads so many bytes once; `out` is 4 bytes that are not written.
void launch_read(cudaStream_t stream, int blocks, const void* from, size_t bytes, void* out);
/// Multiply-adds of f32, and of int8 on the tensor cores; multiply and add counted apart.
double launch_fma(cudaStream_t stream, int blocks, int rounds, void* out);
double launch_mma(cudaStream_t stream, int blocks, int rounds, void* out);

}  // namespace hearth::kernels
