// Copies alongside the ops: a stream of their own, and events that order it with the ops' stream on
// request.

#include "kernels/cuda/host/check.h"
#include "kernels/cuda/host/op_functions.h"
#include "kernels/cuda/host/state.h"

namespace hearth::kernels {

cudaError_t create_side_stream(SideStream* side) {
  cudaError_t error = create_stream(&side->stream);
  if (error == cudaSuccess) error = create_event(&side->order);
  if (error == cudaSuccess) error = create_marks(&side->marks);
  return error;
}

namespace cuda {
namespace {

void order(const CudaState& cuda, cudaStream_t first, cudaStream_t then) {
  // Waiting for an event waits for its latest record before the call, so one event is enough.
  HEARTH_CUDA_CHECK(cudaEventRecord(cuda.side.order.get(), first));
  HEARTH_CUDA_CHECK(cudaStreamWaitEvent(then, cuda.side.order.get(), 0));
}

void after_ops(void* state) {
  const CudaState& cuda = cuda_state(state);
  order(cuda, cuda.stream.get(), cuda.side.stream.get());
}

void before_ops(void* state) {
  const CudaState& cuda = cuda_state(state);
  order(cuda, cuda.side.stream.get(), cuda.stream.get());
}

void to_host(void* state, void* dst, const void* src, size_t bytes) {
  cudaStream_t stream = cuda_state(state).side.stream.get();
  HEARTH_CUDA_CHECK(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToHost, stream));
}

void to_device(void* state, void* dst, const void* src, size_t bytes) {
  CudaState& cuda = cuda_state(state);
  cuda.held.overwrite(dst, bytes);
  HEARTH_CUDA_CHECK(
      cudaMemcpyAsync(dst, src, bytes, cudaMemcpyHostToDevice, cuda.side.stream.get()));
}

uint64_t mark_copies(void* state) {
  SideStream& side = cuda_state(state).side;
  return make_mark(&side.marks, side.stream.get());
}

bool copies_ended(void* state, uint64_t mark) {
  return mark_ended(&cuda_state(state).side.marks, mark);
}

void wait_for_copies(void* state, uint64_t mark) {
  wait_for_mark(&cuda_state(state).side.marks, mark);
}

}  // namespace

const SideCopies kSideCopies = {after_ops,   before_ops,   to_host,        to_device,
                                mark_copies, copies_ended, wait_for_copies};

}  // namespace cuda
}  // namespace hearth::kernels
