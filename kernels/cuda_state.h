#pragma once
// What one CUDA op table owns: the device's stream and the scratch of quantized activations.
// Used by the engine's thread alone once the table is made.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace hearth::kernels {

struct StreamCloser {
  void operator()(cudaStream_t stream) const;
};
using CudaStream = std::unique_ptr<std::remove_pointer_t<cudaStream_t>, StreamCloser>;

struct CudaFree {
  void operator()(void* memory) const;
};
using CudaMemory = std::unique_ptr<void, CudaFree>;

/// Rows of activations that matmul quantizes at a time; more rows take several rounds. So scratch
/// is bounded by the widest quantized weight and known when the weights are packed: ops allocate
/// nothing, and a captured step's addresses stay valid.
inline constexpr int64_t kQuantRows = 256;

/// Activations as matmul's contract has them: per row and block of 32 inputs, 32 int8 and a scale.
/// Packing a weight with more inputs than any before moves it: steps captured earlier are void.
struct QuantScratch {
  CudaMemory values;  ///< (kQuantRows, max_cols) int8
  CudaMemory scales;  ///< (kQuantRows, max_cols / 32) f32
  int64_t max_cols = 0;
};

struct CudaState {
  int device = 0;
  CudaStream stream;
  QuantScratch quant;
};

/// Makes `device` the calling thread's current device, at no cost where it is already.
cudaError_t make_current(int device);

/// The state behind an OpTable's pointer, its device made current for the calling thread.
CudaState& cuda_state(void* state);

/// Device memory with undefined content, or null where there is not enough. Not during capture.
CudaMemory cuda_malloc(size_t bytes);

}  // namespace hearth::kernels
