#pragma once
// What one CUDA op table owns: the device's streams and the scratch of products.
// Used by the engine's thread alone once the table is made.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/cuda/host/cublaslt.h"

namespace hearth::kernels {

struct StreamCloser {
  void operator()(cudaStream_t stream) const;
};
using CudaStream = std::unique_ptr<std::remove_pointer_t<cudaStream_t>, StreamCloser>;

struct EventCloser {
  void operator()(cudaEvent_t event) const;
};
using CudaEvent = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, EventCloser>;

struct CudaFree {
  void operator()(void* memory) const;
};
using CudaMemory = std::unique_ptr<void, CudaFree>;

/// Rows of activations that matmul quantizes at a time; more rows take several rounds. So scratch
/// is bounded by the widest quantized weight and known when the weights are packed: ops allocate
/// nothing, and a captured step's addresses stay valid.
inline constexpr int64_t kQuantRows = 2048;

/// Rows that the scratch of quantized activations holds, for the product that reads them next.
struct QuantizedRows {
  const void* data = nullptr;  ///< null: none
  int64_t stride = 0;
  int64_t cols = 0;
  int64_t rows = 0;  ///< bound of their number
  const int32_t* count = nullptr;
};

/// Activations as matmul's contract has them (kernels/cuda/matmul/quant_layout.cuh), in chunks of
/// 256 inputs. Packing a weight with more inputs than any before moves it: steps captured earlier
/// are void.
struct QuantScratch {
  CudaMemory values;  ///< (kQuantRows, max_chunks * 256) int8
  CudaMemory blocks;  ///< (kQuantRows, max_chunks * 8) ActivationBlock
  int64_t max_chunks = 0;
  QuantizedRows held;
};

/// What `--numerics fast` computes with, all taken when the table is made
/// (kernels/cuda/matmul/fast.cuh). The library's workspace is what its documentation wants for the
/// devices that want most.
inline constexpr int64_t kFastWeightBytes = int64_t{64} << 20;
inline constexpr int64_t kFastRowBytes = int64_t{64} << 20;
inline constexpr int64_t kFastWorkspaceBytes = int64_t{32} << 20;
struct FastScratch {
  int64_t weight_bytes = kFastWeightBytes;  ///< used of what was taken; a test makes it less
  int64_t row_bytes = kFastRowBytes;
  CudaMemory weights;                    ///< a piece of a weight as f16 or bf16, row by row
  CudaMemory rows;                       ///< those of x likewise
  CudaMemory scales;                     ///< (kQuantRows) f32, of these rows
  CudaMemory workspace;                  ///< kFastWorkspaceBytes
  std::unique_ptr<LtProducts> products;  ///< null: there is no such mode here
};

/// Which rows go to which expert, of one round. Moves as QuantScratch does.
struct MoeScratch {
  CudaMemory choices;  ///< (kQuantRows) i32
  CudaMemory slices;   ///< (kQuantRows / 8 + max_experts) ExpertSlice
  int32_t max_experts = 0;
};

/// Attention's partial results: as many rows at a time as fit.
inline constexpr int64_t kPartialBytes = int64_t{64} << 20;

/// Places in a stream's work, numbered from 1.
struct StreamMarks {
  /// Those that are told apart by an event; older ones have ended.
  static constexpr uint64_t kMarks = 16;
  CudaEvent events[kMarks];  ///< of mark m: m % kMarks
  uint64_t last = 0;
  uint64_t ended = 0;  ///< known to have
};

/// Copies beside the ops (side_copies.h): their stream, and what orders it and the ops' stream.
struct SideStream {
  CudaStream stream;
  CudaEvent order;  ///< recorded and waited for at once
  StreamMarks marks;
};

/// Places in the ops' work with the time at which the device came there (device_clock.h).
struct Stamps {
  std::vector<CudaEvent> events;  ///< of stamp s: s % size; made at the first one
  uint64_t last = 0;
};

struct CudaState {
  int device = 0;
  CudaStream stream;
  StreamMarks marks;  ///< of the ops
  Stamps stamps;
  SideStream side;
  CudaMemory partial;  ///< kPartialBytes
  QuantScratch quant;
  MoeScratch moe;
  FastScratch fast;
  bool capturing = false;
  int64_t scratch_moves = 0;  ///< what was captured before the last move is void
  uint64_t graph_bytes = 0;   ///< by which free memory shrank while steps were captured
  int32_t graphs_refused = 0;
};

/// Creates them. cudaSuccess, or the first error.
cudaError_t create_stream(CudaStream* stream);
cudaError_t create_event(CudaEvent* event);
cudaError_t create_marks(StreamMarks* marks);
cudaError_t create_side_stream(SideStream* side);

/// A new mark behind what `stream` was given so far; all marks of `marks` are of that stream.
uint64_t make_mark(StreamMarks* marks, cudaStream_t stream);
/// Whether the stream has come past the mark. Does not wait.
bool mark_ended(StreamMarks* marks, uint64_t mark);
void wait_for_mark(StreamMarks* marks, uint64_t mark);

/// Makes `device` the calling thread's current device, at no cost where it is already.
cudaError_t make_current(int device);

/// The state behind an OpTable's pointer, its device made current for the calling thread. Whatever
/// is called may write what the held quantized rows were made of, so they are forgotten; also what
/// begins and ends a capture, so a captured step knows of no other. But a product says itself
/// whether it does.
CudaState& cuda_state(void* state);
CudaState& cuda_state_of_product(void* state);

/// Free on the current device now.
uint64_t free_device_bytes();

/// Device memory with undefined content, or null where there is not enough. Not during capture.
CudaMemory cuda_malloc(size_t bytes);

}  // namespace hearth::kernels
