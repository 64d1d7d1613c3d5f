// Events and their uses: marks, which are points in a stream's work to wait for, and stamps, which
// are points whose time is measured.

#include "kernels/base/check.h"
#include "kernels/cuda/host/check.h"
#include "kernels/cuda/host/op_functions.h"
#include "kernels/cuda/host/state.h"
#include "kernels/ops/device_clock.h"

namespace hearth::kernels {
namespace {

cudaEvent_t event_of(const StreamMarks& marks, uint64_t mark) {
  return marks.events[mark % StreamMarks::kMarks].get();
}

uint64_t stamp(void* state) {
  CudaState& cuda = cuda_state(state);
  Stamps& stamps = cuda.stamps;
  if (stamps.events.empty()) {
    for (uint64_t i = 0; i < DeviceClock::kStamps; ++i) {
      cudaEvent_t made = nullptr;
      HEARTH_CUDA_CHECK(cudaEventCreateWithFlags(&made, cudaEventDefault));
      stamps.events.emplace_back(made);
    }
  }
  const uint64_t made = stamps.last + 1;
  HEARTH_CUDA_CHECK(
      cudaEventRecord(stamps.events[made % DeviceClock::kStamps].get(), cuda.stream.get()));
  return stamps.last = made;
}

double us_between(void* state, uint64_t from, uint64_t to) {
  const Stamps& stamps = cuda_state(state).stamps;
  HEARTH_CHECK(from < to && to <= stamps.last && from + DeviceClock::kStamps > stamps.last,
               "stamps {} and {} of {}", from, to, stamps.last);
  cudaEvent_t first = stamps.events[from % DeviceClock::kStamps].get();
  cudaEvent_t second = stamps.events[to % DeviceClock::kStamps].get();
  float ms = 0;
  HEARTH_CUDA_CHECK(cudaEventSynchronize(second));
  HEARTH_CUDA_CHECK(cudaEventElapsedTime(&ms, first, second));
  return double{ms} * 1e3;
}

}  // namespace

void EventCloser::operator()(cudaEvent_t event) const {
  HEARTH_CUDA_CHECK(cudaEventDestroy(event));
}

cudaError_t create_event(CudaEvent* event) {
  cudaEvent_t made = nullptr;
  const cudaError_t error = cudaEventCreateWithFlags(&made, cudaEventDisableTiming);
  if (error == cudaSuccess) event->reset(made);
  return error;
}

cudaError_t create_marks(StreamMarks* marks) {
  cudaError_t error = cudaSuccess;
  for (CudaEvent& event : marks->events) {
    if (error == cudaSuccess) error = create_event(&event);
  }
  return error;
}

uint64_t make_mark(StreamMarks* marks, cudaStream_t stream) {
  const uint64_t made = marks->last + 1;
  // The new mark reuses the event of an older mark, which must have ended first.
  if (made > StreamMarks::kMarks) wait_for_mark(marks, made - StreamMarks::kMarks);
  HEARTH_CUDA_CHECK(cudaEventRecord(event_of(*marks, made), stream));
  return marks->last = made;
}

bool mark_ended(StreamMarks* marks, uint64_t mark) {
  if (mark <= marks->ended) return true;
  const cudaError_t error = cudaEventQuery(event_of(*marks, mark));
  if (error == cudaErrorNotReady) return false;
  HEARTH_CUDA_CHECK(error);
  marks->ended = mark;
  return true;
}

void wait_for_mark(StreamMarks* marks, uint64_t mark) {
  if (mark <= marks->ended) return;
  HEARTH_CUDA_CHECK(cudaEventSynchronize(event_of(*marks, mark)));
  marks->ended = mark;
}

uint64_t cuda::mark(void* state) {
  CudaState& cuda = cuda_state(state);
  return make_mark(&cuda.marks, cuda.stream.get());
}

void cuda::wait(void* state, uint64_t mark) { wait_for_mark(&cuda_state(state).marks, mark); }

const DeviceClock cuda::kDeviceClock = {stamp, us_between};

}  // namespace hearth::kernels
