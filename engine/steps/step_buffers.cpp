#include "engine/steps/step_buffers.h"

namespace hearth::engine {

using kernels::HostBuffer;

StepBuffers::StepBuffers(const kernels::OpTable& ops, const MemoryPlan& plan, bool draws)
    : index(ops, plan.index_bytes) {
  if (!draws) return;
  const size_t outputs = plan.max_outputs;
  draw_rows = HostBuffer(ops, outputs * sizeof(kernels::DrawRow));
  drawn = HostBuffer(ops, outputs * sizeof(int32_t));
  best = HostBuffer(ops, outputs * sizeof(kernels::BestLogits));
  fed_rows = HostBuffer(ops, outputs * sizeof(int32_t));
}

bool StepBuffers::page_locked() const {
  return index.page_locked() && draw_rows.page_locked() && drawn.page_locked() &&
         best.page_locked() && fed_rows.page_locked();
}

}  // namespace hearth::engine
