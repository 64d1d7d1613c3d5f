// Device memory, copies and waiting on the stream of the ops (copies alongside the ops:
// kernels/cuda/host/side_copies.cpp).

#include <array>
#include <atomic>
#include <cstring>

#include "kernels/cuda/host/check.h"
#include "kernels/cuda/host/op_functions.h"
#include "kernels/cuda/host/state.h"

namespace hearth::kernels {
namespace {

/// More than a machine has. Devices of one process may differ.
constexpr int kMostDevices = 64;
std::array<std::atomic<bool>, kMostDevices> overlap{};
thread_local int current = -1;  ///< the thread's device

}  // namespace

void StreamCloser::operator()(cudaStream_t stream) const {
  HEARTH_CUDA_CHECK(cudaStreamDestroy(stream));
}

cudaError_t create_stream(CudaStream* stream) {
  cudaStream_t made = nullptr;
  const cudaError_t error = cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking);
  if (error == cudaSuccess) stream->reset(made);
  return error;
}

void CudaFree::operator()(void* memory) const { HEARTH_CUDA_CHECK(cudaFree(memory)); }

bool launches_overlap() {
  return current >= 0 && overlap[current % kMostDevices].load(std::memory_order_relaxed);
}
void set_launches_overlap(bool to) {
  if (current >= 0) overlap[current % kMostDevices].store(to, std::memory_order_relaxed);
}

cudaError_t make_current(int device) {
  if (current == device) return cudaSuccess;
  const cudaError_t error = cudaSetDevice(device);
  if (error == cudaSuccess) current = device;
  return error;
}

CudaState& cuda_state(void* state) {
  CudaState& cuda = *static_cast<CudaState*>(state);
  // The table may be made by one thread and used by another, and the current device is per thread.
  HEARTH_CUDA_CHECK(make_current(cuda.device));
  return cuda;
}

uint64_t free_device_bytes() {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  HEARTH_CUDA_CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
  return free_bytes;
}

CudaMemory cuda_malloc(size_t bytes) {
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, bytes);
  if (error == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();  // clear the error from the thread: the caller handles it
    return nullptr;
  }
  HEARTH_CUDA_CHECK(error);
  return CudaMemory(memory);
}

namespace cuda {

void* allocate(void* state, size_t bytes) {
  CudaState& cuda = cuda_state(state);
  CudaMemory memory = cuda_malloc(bytes);
  if (memory == nullptr) return nullptr;
  HEARTH_CUDA_CHECK(cudaMemsetAsync(memory.get(), 0, bytes, cuda.stream.get()));
  return memory.release();
}

void release(void* state, void* memory, size_t bytes) {
  cuda_state(state).held.overwrite(memory, bytes);
  CudaFree()(memory);  // waits for queued work
}

// From pageable memory the call returns once the bytes are copied, to a staging buffer of the
// driver or to the device. Page-locked memory is read when the stream reaches the copy.
void copy_to_device(void* state, void* dst, const void* src, size_t bytes) {
  if (bytes == 0) return;
  CudaState& cuda = cuda_state(state);
  cuda.held.overwrite(dst, bytes);
  HEARTH_CUDA_CHECK(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyHostToDevice, cuda.stream.get()));
}

void copy_to_host(void* state, void* dst, const void* src, size_t bytes) {
  if (bytes == 0) return;
  cudaStream_t stream = cuda_state(state).stream.get();
  HEARTH_CUDA_CHECK(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToHost, stream));
  HEARTH_CUDA_CHECK(cudaStreamSynchronize(stream));
}

void synchronize(void* state) {
  HEARTH_CUDA_CHECK(cudaStreamSynchronize(cuda_state(state).stream.get()));
}

void* allocate_host(void* state, size_t bytes) {
  cuda_state(state);
  void* memory = nullptr;
  const cudaError_t error = cudaHostAlloc(&memory, bytes, cudaHostAllocDefault);
  if (error == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();  // e.g. a limit on locked memory
    return nullptr;
  }
  HEARTH_CUDA_CHECK(error);
  std::memset(memory, 0, bytes);
  return memory;
}

void release_host(void* state, void* memory) {
  synchronize(state);  // a copy may still read it
  HEARTH_CUDA_CHECK(cudaStreamSynchronize(cuda_state(state).side.stream.get()));
  HEARTH_CUDA_CHECK(cudaFreeHost(memory));
}

void copy_blocks(void* state, const CopyBlocksArgs& args) {
  CudaState& cuda = cuda_state(state);
  for (size_t i = 0; i < args.src.size(); ++i) {
    if (args.src[i] == args.dst[i]) continue;
    std::byte* to = args.base + args.dst[i] * args.block_bytes;
    cuda.held.overwrite(to, args.block_bytes);
    HEARTH_CUDA_CHECK(cudaMemcpyAsync(to, args.base + args.src[i] * args.block_bytes,
                                      args.block_bytes, cudaMemcpyDeviceToDevice,
                                      cuda.stream.get()));
  }
}

}  // namespace cuda
}  // namespace hearth::kernels
