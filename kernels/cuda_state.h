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
inline constexpr int64_t kQuantRows = 2048;

/// Activations as matmul's contract has them (cuda_quant.cuh), in chunks of 256 inputs. Packing a
/// weight with more inputs than any before moves it: steps captured earlier are void.
struct QuantScratch {
  CudaMemory values;  ///< (kQuantRows, max_chunks * 256) int8
  CudaMemory blocks;  ///< (kQuantRows, max_chunks * 8) ActivationBlock
  int64_t max_chunks = 0;
};

/// Which rows go to which expert, of one round. Moves as QuantScratch does.
struct MoeScratch {
  CudaMemory choices;  ///< (kQuantRows) i32
  CudaMemory slices;   ///< (kQuantRows / 8 + max_experts) ExpertSlice
  int32_t max_experts = 0;
};

/// Attention's partial results: as many rows at a time as fit.
inline constexpr int64_t kPartialBytes = int64_t{64} << 20;

struct CudaState {
  int device = 0;
  CudaStream stream;
  CudaMemory partial;  ///< kPartialBytes
  QuantScratch quant;
  MoeScratch moe;
  int64_t scratch_moves = 0;  ///< what was captured before the last move is void
};

/// Makes `device` the calling thread's current device, at no cost where it is already.
cudaError_t make_current(int device);

/// The state behind an OpTable's pointer, its device made current for the calling thread.
CudaState& cuda_state(void* state);

/// Device memory with undefined content, or null where there is not enough. Not during capture.
CudaMemory cuda_malloc(size_t bytes);

}  // namespace hearth::kernels
