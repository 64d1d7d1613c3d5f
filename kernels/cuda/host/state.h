#pragma once
// The data of one CUDA op table: the device's streams and the scratch of products. Once the table
// is made, only the engine's thread uses it.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/cuda/host/cublaslt.h"
#include "kernels/cuda/host/held_rows.h"

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

/// Rows of activations that matmul quantizes at a time; more rows take several rounds. So the size
/// of the scratch is bounded by the widest quantized weight and known once the weights are packed:
/// ops allocate nothing, and a captured step's addresses stay valid.
inline constexpr int64_t kQuantRows = 2048;
/// Rows that an op quantizes while it still reads quantized ones (ScratchPart::kFew).
inline constexpr int64_t kFewQuantRows = 8;

/// Activations as matmul's definition quantizes them (kernels/cuda/matmul/quant_layout.cuh), in
/// chunks of 256 inputs. Packing a weight with more inputs than any earlier one moves this scratch
/// and invalidates captured steps. What it holds: CudaState::held.
struct QuantScratch {
  CudaMemory values;  ///< (kQuantRows, max_chunks * 256) int8
  CudaMemory blocks;  ///< (kQuantRows, max_chunks * 8) ActivationBlock
  CudaMemory few;     ///< the same for kFewQuantRows, together; null unless `unconfirmed`
  int64_t max_chunks = 0;
};

/// Scratch of `--numerics fast`, all allocated when the table is made
/// (kernels/cuda/matmul/fast.cuh). The workspace has the largest size that the library's
/// documentation recommends for any device.
inline constexpr int64_t kFastWeightBytes = int64_t{64} << 20;
inline constexpr int64_t kFastRowBytes = int64_t{64} << 20;
inline constexpr int64_t kFastWorkspaceBytes = int64_t{32} << 20;
struct FastScratch {
  int64_t weight_bytes = kFastWeightBytes;  ///< how much of the memory is used; tests reduce it
  int64_t row_bytes = kFastRowBytes;
  CudaMemory weights;                    ///< a piece of a weight as f16 or bf16, row by row
  CudaMemory rows;                       ///< rows of x as f16 or bf16
  CudaMemory scales;                     ///< (kQuantRows) f32, for these rows
  CudaMemory workspace;                  ///< kFastWorkspaceBytes
  std::unique_ptr<LtProducts> products;  ///< null: no fast mode in this table
};

/// Assignment of rows to experts in one round. Moves like QuantScratch.
struct MoeScratch {
  CudaMemory choices;  ///< (kQuantRows) i32
  CudaMemory slices;   ///< (kQuantRows / 8 + max_experts) ExpertSlice
  int32_t max_experts = 0;
};

/// Attention's partial results, for as many rows at a time as fit.
inline constexpr int64_t kPartialBytes = int64_t{64} << 20;
/// Counters of blocks that have stored their results (kernels/cuda/arrivals.cuh); a launch leaves
/// them zero.
inline constexpr int64_t kArrivals = 8192;

/// Marks in a stream's work, numbered from 1.
struct StreamMarks {
  /// Only this many marks have an event each; older ones have ended.
  static constexpr uint64_t kMarks = 16;
  CudaEvent events[kMarks];  ///< mark m uses event m % kMarks
  uint64_t last = 0;
  uint64_t ended = 0;  ///< last mark known to have ended
};

/// Copies alongside the ops (side_copies.h): their stream, and the event that orders it with the
/// ops' stream.
struct SideStream {
  CudaStream stream;
  CudaEvent order;  ///< recorded and then waited for immediately
  StreamMarks marks;
};

/// Timestamps in the ops' work (device_clock.h).
struct Stamps {
  std::vector<CudaEvent> events;  ///< stamp s uses event s % size; created at the first stamp
  uint64_t last = 0;
};

struct CudaState {
  int device = 0;
  CudaStream stream;
  StreamMarks marks;  ///< of the ops
  Stamps stamps;
  SideStream side;
  CudaMemory partial;           ///< kPartialBytes
  CudaMemory arrival_counters;  ///< (kArrivals) u32; null unless `unconfirmed`
  QuantScratch quant;
  HeldRows held;  ///< in `quant`
  MoeScratch moe;
  FastScratch fast;
  bool capturing = false;
  bool wgmma = false;         ///< the device has wgmma, and the build has kernels with it
  bool unconfirmed = false;   ///< kernels that no device has run yet are used
  int64_t scratch_moves = 0;  ///< steps captured before the last move are invalid
  uint64_t graph_bytes = 0;   ///< free memory lost while steps were captured
  int32_t graphs_refused = 0;

  uint32_t* arrivals() const { return static_cast<uint32_t*>(arrival_counters.get()); }
};

/// Create streams and events. Return cudaSuccess or the first error.
cudaError_t create_stream(CudaStream* stream);
cudaError_t create_event(CudaEvent* event);
cudaError_t create_marks(StreamMarks* marks);
cudaError_t create_side_stream(SideStream* side);

/// Makes a mark after the work queued so far on `stream`; all marks of `marks` are on that stream.
uint64_t make_mark(StreamMarks* marks, cudaStream_t stream);
/// True if the stream has passed the mark. Does not wait.
bool mark_ended(StreamMarks* marks, uint64_t mark);
void wait_for_mark(StreamMarks* marks, uint64_t mark);

/// Whether launches begin while the one before still runs (kernels/cuda/device.cuh): of the
/// process, set when a table is made. Devices from compute capability 9.0 on can.
bool launches_overlap();
void set_launches_overlap(bool overlap);

/// Makes `device` the calling thread's current device; free if it already is.
cudaError_t make_current(int device);

/// The state of an op table; its device is made current for the calling thread.
CudaState& cuda_state(void* state);

/// Bytes free on the current device now.
uint64_t free_device_bytes();

/// Device memory with undefined content, or null if there is not enough. Not during a capture.
CudaMemory cuda_malloc(size_t bytes);

}  // namespace hearth::kernels
