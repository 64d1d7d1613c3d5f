#include "daemon/worker/serve/canvas_request.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <utility>

namespace hearth::worker {

Error no_canvas(const PrepModel& model, std::string_view field) {
  return Error::unsupported(
      fmt::format("{}: model {} fills a canvas, and not from left to right", field, model.name),
      std::string(field));
}

Result<std::optional<models::CanvasParams>> canvas_of(const PrepModel& model,
                                                      const ipc::GenerateRequest& request,
                                                      int32_t max_tokens) {
  const models::CanvasModel& usual = model.canvas;
  const bool denoises = usual.mask_token >= 0;
  const std::pair<bool, std::string_view> own[] = {{request.steps > 0, "steps"},
                                                   {request.block_length > 0, "block_length"},
                                                   {request.remasking != "auto", "remasking"}};
  for (const auto& [given, field] : own) {
    if (!given || denoises) continue;
    return Error::unsupported(
        fmt::format("{}: model {} writes from left to right and fills no canvas", field,
                    model.name),
        std::string(field));
  }
  if (!denoises) return std::optional<models::CanvasParams>();
  const std::pair<bool, std::string_view> refused[] = {
      {!request.suffix.empty(), "suffix"},
      {!request.json_schema.empty(), "json_schema"},
      {!request.grammar.empty(), "grammar"},
      {!request.regex.empty(), "regex"},
      {!request.prediction.empty(), "prediction"},
      {request.logprobs >= 0, "logprobs"},
      {request.prompt_logprobs, "prompt_logprobs"},
      {request.repetition_penalty.value_or(1) != 1, "repetition_penalty"},
      {request.presence_penalty != 0, "presence_penalty"},
      {request.frequency_penalty != 0, "frequency_penalty"},
      {request.reasoning_budget > 0, "reasoning_budget"},
      {request.draft != "auto" && request.draft != "none", "draft"}};
  for (const auto& [given, field] : refused) {
    if (!given) continue;
    return no_canvas(model, field);
  }
  models::CanvasParams out;
  const int32_t block = request.block_length > 0 ? request.block_length : usual.block_length;
  out.block_length =
      std::min({block > 0 ? block : max_tokens, max_tokens, models::kMostCanvasBlock});
  const int32_t steps = request.steps > 0 ? request.steps : usual.steps;
  out.steps = steps > 0 ? steps : std::min(max_tokens, models::kMostCanvasSteps);
  out.remasking = models::remasking_named(request.remasking).value_or(usual.remasking);
  return std::optional(out);
}

}  // namespace hearth::worker
