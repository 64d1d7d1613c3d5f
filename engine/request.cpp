#include "engine/request.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "kernels/base/numbers.h"
#include "kernels/base/sizes.h"

namespace hearth::engine {
namespace {

Error bad(std::string_view field, const std::string& message) {
  return Error::invalid(fmt::format("{} {}", field, message), std::string(field));
}

Result<void> check_ids(std::string_view field, std::span<const int32_t> ids, int32_t vocab_size) {
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocab_size) {
      return bad(field, fmt::format("holds token {}, want 0 to {}", id, vocab_size - 1));
    }
  }
  return {};
}

Result<void> check_sampling(const SamplingParams& sampling, int32_t vocab_size) {
  struct Range {
    std::string_view field;
    double value, min, max;
  };
  constexpr double kMax = 1e6;
  const Range ranges[] = {
      {"temperature", sampling.temperature, 0, kMax},
      {"top_k", as_double(sampling.top_k), 0, 1e9},
      {"top_p", sampling.top_p, 0, 1},
      {"min_p", sampling.min_p, 0, 1},
      {"typical_p", sampling.typical_p, 0, 1},
      {"repetition_penalty", sampling.repetition_penalty, 1e-6, kMax},
      {"presence_penalty", sampling.presence_penalty, -kMax, kMax},
      {"frequency_penalty", sampling.frequency_penalty, -kMax, kMax},
      {"penalty_window", as_double(sampling.penalty_window), -1, 1e9},
      {"logprobs", as_double(sampling.top_logprobs), -1, 1e9},
  };
  for (const Range& r : ranges) {
    if (r.value >= r.min && r.value <= r.max) continue;  // false for NaN
    return bad(r.field, fmt::format("is {}, want {} to {}", r.value, r.min, r.max));
  }
  for (const auto& [id, bias] : sampling.logit_bias) {
    HEARTH_TRY(check_ids("logit_bias", std::span(&id, 1), vocab_size));
    if (!std::isfinite(bias)) return bad("logit_bias", fmt::format("of token {} is {}", id, bias));
  }
  return {};
}

}  // namespace

Result<void> check_request(const Request& request, int32_t vocab_size) {
  if (request.prompt.empty()) return bad("prompt", "is empty, want at least one token");
  HEARTH_TRY(check_ids("prompt", request.prompt, vocab_size));
  HEARTH_TRY(check_ids("stop_ids", request.stop_ids, vocab_size));
  HEARTH_TRY(check_ids("prediction", request.prediction, vocab_size));
  if (request.adapters.size() > kMostAdapters) {
    return bad("adapter", fmt::format("names {} adapters, want at most {}", request.adapters.size(),
                                      kMostAdapters));
  }
  for (const UsedAdapter& adapter : request.adapters) {
    if (adapter.source == nullptr) return bad("adapter", "has no file");
    if (!std::isfinite(adapter.scale)) {
      return bad("adapter_scale", fmt::format("is {}, want a finite number", adapter.scale));
    }
  }
  if (request.n < 1) return bad("n", fmt::format("is {}, want at least 1", request.n));
  if (request.pooling != models::Pooling::kNone) {
    if (request.n != 1 || request.max_tokens != 0 || request.constraint != nullptr ||
        request.sampling.prompt_logprobs || !request.resume.empty()) {
      return bad("pooling", "wants one sample without tokens, and nothing of how they are drawn");
    }
    return {};
  }
  if (request.max_tokens < 1) {
    return bad("max_tokens", fmt::format("is {}, want at least 1", request.max_tokens));
  }
  if (request.constraint_prefix < 0 || request.constraint_prefix > size32(request.prompt)) {
    return bad("constraint_prefix", fmt::format("is {}, the prompt has {} tokens",
                                                request.constraint_prefix, request.prompt.size()));
  }
  if (const ReasoningBound* reasoning = request.reasoning.get()) {
    if (reasoning->end.empty() || reasoning->closing.empty() || reasoning->max_tokens < 0) {
      return bad("reasoning", "wants an end mark, tokens that close it, and a bound of 0 or more");
    }
    HEARTH_TRY(check_ids("reasoning", reasoning->closing, vocab_size));
  }
  if (size32(request.resume) > request.n) {
    return bad("resume", fmt::format("has {} samples, n is {}", request.resume.size(), request.n));
  }
  for (const std::vector<int32_t>& sample : request.resume) {
    HEARTH_TRY(check_ids("resume", sample, vocab_size));
    if (size32(sample) > request.max_tokens) {
      return bad("resume",
                 fmt::format("has {} tokens, max_tokens is {}", sample.size(), request.max_tokens));
    }
  }
  return check_sampling(request.sampling, vocab_size);
}

Result<void> check_canvas(const Request& request, const models::CanvasModel& model) {
  const bool denoises = model.mask_token >= 0;
  if (request.canvas.has_value() != denoises) {
    if (!denoises) return Error::unsupported("steps: the model fills no canvas", "steps");
    return Error::unsupported("the model fills canvases, and nothing else", "model");
  }
  if (!denoises) return {};
  const auto& [steps, block_length, remasking] = *request.canvas;
  if (steps < 1 || steps > models::kMostCanvasSteps) {
    return bad("steps", fmt::format("is {}, want 1 to {}", steps, models::kMostCanvasSteps));
  }
  if (block_length < 1 || block_length > models::kMostCanvasBlock) {
    return bad("block_length",
               fmt::format("is {}, want 1 to {}", block_length, models::kMostCanvasBlock));
  }
  const SamplingParams& sampling = request.sampling;
  const auto refuse = [](bool met, std::string_view field) -> Result<void> {
    if (!met) return {};
    return Error::unsupported(
        fmt::format("{}: a canvas is not filled from left to right, which this needs", field),
        std::string(field));
  };
  HEARTH_TRY(refuse(sampling.top_logprobs >= 0, "logprobs"));
  HEARTH_TRY(refuse(sampling.prompt_logprobs, "prompt_logprobs"));
  HEARTH_TRY(refuse(sampling.repetition_penalty != 1, "repetition_penalty"));
  HEARTH_TRY(refuse(sampling.presence_penalty != 0, "presence_penalty"));
  HEARTH_TRY(refuse(sampling.frequency_penalty != 0, "frequency_penalty"));
  HEARTH_TRY(refuse(request.constraint != nullptr, "grammar"));
  HEARTH_TRY(refuse(request.reasoning != nullptr, "reasoning_budget"));
  return refuse(!request.prediction.empty(), "prediction");
}

void SpeculationCounts::add(const DraftSize& drafted, int32_t accepted, DraftedBy by) {
  drafted_by[to_underlying(by)] += drafted.tokens;
  accepted_by[to_underlying(by)] += accepted;
  ++verifications;
  drafted_tokens += drafted.tokens;
  accepted_tokens += accepted;
  for (int32_t i = 0; i < drafted.places; ++i) {
    const size_t at = std::min<size_t>(i, kPositions - 1);
    ++drafted_at[at];
    if (i < accepted) ++accepted_at[at];
  }
}

}  // namespace hearth::engine
