// Copies beside the ops: a stream of their own, and events that order it and the ops' stream where
// somebody says so.

#include "kernels/cuda_check.h"
#include "kernels/cuda_ops_internal.h"
#include "kernels/cuda_state.h"

namespace hearth::kernels {

void EventCloser::operator()(cudaEvent_t event) const {
  HEARTH_CUDA_CHECK(cudaEventDestroy(event));
}

cudaError_t create_event(CudaEvent* event) {
  cudaEvent_t made = nullptr;
  const cudaError_t error = cudaEventCreateWithFlags(&made, cudaEventDisableTiming);
  if (error == cudaSuccess) event->reset(made);
  return error;
}

cudaError_t create_side_stream(SideStream* side) {
  cudaError_t error = create_stream(&side->stream);
  if (error == cudaSuccess) error = create_event(&side->order);
  for (CudaEvent& mark : side->marks) {
    if (error == cudaSuccess) error = create_event(&mark);
  }
  return error;
}

namespace cuda {
namespace {

void order(const CudaState& cuda, cudaStream_t first, cudaStream_t then) {
  // What waits for an event waits for its last record before that call: one event serves them all.
  HEARTH_CUDA_CHECK(cudaEventRecord(cuda.side.order.get(), first));
  HEARTH_CUDA_CHECK(cudaStreamWaitEvent(then, cuda.side.order.get(), 0));
}

cudaEvent_t event_of(const SideStream& side, uint64_t mark) {
  return side.marks[mark % SideStream::kMarks].get();
}

void wait_for(SideStream& side, uint64_t mark) {
  if (mark <= side.ended_mark) return;
  HEARTH_CUDA_CHECK(cudaEventSynchronize(event_of(side, mark)));
  side.ended_mark = mark;
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
  cudaStream_t stream = cuda_state(state).side.stream.get();
  HEARTH_CUDA_CHECK(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyHostToDevice, stream));
}

uint64_t mark(void* state) {
  SideStream& side = cuda_state(state).side;
  const uint64_t made = side.last_mark + 1;
  // Its event is an older mark's, which must not be asked for any more.
  if (made > SideStream::kMarks) wait_for(side, made - SideStream::kMarks);
  HEARTH_CUDA_CHECK(cudaEventRecord(event_of(side, made), side.stream.get()));
  return side.last_mark = made;
}

bool ended(void* state, uint64_t mark) {
  SideStream& side = cuda_state(state).side;
  if (mark <= side.ended_mark) return true;
  const cudaError_t error = cudaEventQuery(event_of(side, mark));
  if (error == cudaErrorNotReady) return false;
  HEARTH_CUDA_CHECK(error);
  side.ended_mark = mark;
  return true;
}

void wait(void* state, uint64_t mark) { wait_for(cuda_state(state).side, mark); }

}  // namespace

const SideCopies kSideCopies = {after_ops, before_ops, to_host, to_device, mark, ended, wait};

}  // namespace cuda
}  // namespace hearth::kernels
