// Steps captured as CUDA graphs: one launch instead of some hundreds.

#include "kernels/cuda/host/check.h"
#include "kernels/cuda/host/op_functions.h"
#include "kernels/cuda/host/state.h"

namespace hearth::kernels {
namespace {

struct GraphCloser {
  void operator()(cudaGraph_t graph) const { HEARTH_CUDA_CHECK(cudaGraphDestroy(graph)); }
};
using CudaGraph = std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, GraphCloser>;
struct GraphExecCloser {
  void operator()(cudaGraphExec_t exec) const { HEARTH_CUDA_CHECK(cudaGraphExecDestroy(exec)); }
};
using CudaGraphExec = std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, GraphExecCloser>;

struct CudaStep : CapturedStep {
  CudaGraphExec exec;
  int64_t scratch_moves = 0;  ///< CudaState::scratch_moves at the time of capture
};

}  // namespace

void cuda::begin_capture(void* opaque) {
  CudaState& state = cuda_state(opaque);
  state.held.drop();  // the step may be replayed when they are gone
  state.capturing = true;
  // Calls of other threads do not involve this stream, so threads that measure or probe may
  // continue.
  HEARTH_CUDA_CHECK(cudaStreamBeginCapture(state.stream.get(), cudaStreamCaptureModeThreadLocal));
}

std::unique_ptr<CapturedStep> cuda::end_capture(void* opaque) {
  CudaState& state = cuda_state(opaque);
  state.held.drop();  // nothing was computed
  state.capturing = false;
  cudaGraph_t captured = nullptr;
  HEARTH_CUDA_CHECK(cudaStreamEndCapture(state.stream.get(), &captured));
  const CudaGraph graph(captured);
  const uint64_t free_before = free_device_bytes();
  auto step = std::make_unique<CudaStep>();
  step->scratch_moves = state.scratch_moves;
  cudaGraphExec_t exec = nullptr;
  cudaError_t error = cudaGraphInstantiate(&exec, graph.get(), 0);
  if (error == cudaSuccess) {
    step->exec.reset(exec);
    // Reserve the device's memory for the graph now, not at the first launch.
    error = cudaGraphUpload(exec, state.stream.get());
  }
  if (error == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    ++state.graphs_refused;
    return nullptr;
  }
  HEARTH_CUDA_CHECK(error);
  const uint64_t free_after = free_device_bytes();
  if (free_after < free_before) state.graph_bytes += free_before - free_after;
  return step;
}

bool cuda::replay(void* opaque, const CapturedStep& captured) {
  CudaState& state = cuda_state(opaque);
  const auto& step = static_cast<const CudaStep&>(captured);
  if (step.scratch_moves != state.scratch_moves) return false;
  state.held.drop();  // the step uses the scratch
  HEARTH_CUDA_CHECK(cudaGraphLaunch(step.exec.get(), state.stream.get()));
  return true;
}

}  // namespace hearth::kernels
