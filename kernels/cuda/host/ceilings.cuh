#pragma once

#include <cuda_runtime.h>

#include <cstddef>

namespace hearth::kernels {

/// Reads `bytes` bytes once; `out` is 4 bytes that are not written.
void launch_read(cudaStream_t stream, int blocks, const void* from, size_t bytes, void* out);
/// Multiply-adds in f32, and in int8 and f16 on the tensor cores; multiply and add counted
/// separately.
double launch_fma(cudaStream_t stream, int blocks, int rounds, void* out);
double launch_mma_int8(cudaStream_t stream, int blocks, int rounds, void* out);
double launch_mma_half(cudaStream_t stream, int blocks, int rounds, void* out);

}  // namespace hearth::kernels
