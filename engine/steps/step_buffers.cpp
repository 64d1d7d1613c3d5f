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

std::optional<RowWish> device_wish(const SamplingParams& params, int32_t vocab_size) {
  if (!params.logit_bias.empty() || params.repetition_penalty != 1.0f ||
      params.presence_penalty != 0.0f || params.frequency_penalty != 0.0f ||
      params.top_logprobs >= 0 || params.prompt_logprobs) {
    return std::nullopt;
  }
  RowWish wish;
  wish.kind = RowWish::Kind::kToken;
  wish.draw.seed = params.seed;
  if (params.temperature <= 0) return wish;
  wish.draw.temperature = params.temperature;
  const bool top_k = params.top_k > 0 && params.top_k < vocab_size;
  if (top_k) {
    wish.kind = RowWish::Kind::kBest;
    if (params.top_k > kernels::BestLogits::kCount) return std::nullopt;
    return wish;
  }
  if (params.top_p < 1 || params.min_p > 0 || params.typical_p < 1) return std::nullopt;
  return wish;
}

}  // namespace hearth::engine
