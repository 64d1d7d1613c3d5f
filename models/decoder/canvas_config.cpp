// The keys of models that denoise a canvas.

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "models/decoder/decoder_config.h"

namespace hearth::models {
namespace {

constexpr std::array<std::string_view, 5> kRemaskings = {"confidence", "entropy", "margin",
                                                         "random", "origin"};

/// 0 to `most`, `fallback` if missing.
Result<int32_t> small_or(const GgufFile& file, std::string_view key, int32_t most,
                         int32_t fallback) {
  if (!file.has(key)) return fallback;
  HEARTH_ASSIGN_OR_RETURN(const uint32_t value, file.get<uint32_t>(key));
  if (std::cmp_less_equal(value, most)) return static_cast<int32_t>(value);
  return Error::corrupt(fmt::format("{}: {}, want 0 to {}", key, value, most));
}

}  // namespace

std::optional<Remasking> remasking_named(std::string_view name) {
  const auto found = std::ranges::find(kRemaskings, name);
  if (found == kRemaskings.end()) return std::nullopt;
  return static_cast<Remasking>(found - kRemaskings.begin());
}

Result<void> DecoderConfig::attend_to_all(Metadata& m, const CanvasModel& usual) {
  constexpr const char* kMask = "tokenizer.ggml.mask_token_id";
  constexpr const char* kShift = "diffusion.shift_logits";
  constexpr const char* kRemasking = "diffusion.remasking";
  const GgufFile& file = m.file();
  HEARTH_ASSIGN_OR_RETURN(const bool causal, m.flag_or("attention.causal", false));
  if (causal) return m.unsupported("attention.causal", "true");
  m.know({"vocab_size"});
  canvas = usual;
  HEARTH_ASSIGN_OR_RETURN(const uint32_t mask, file.get<uint32_t>(kMask));
  if (mask > INT32_MAX) return Error::corrupt(fmt::format("{}: {}", kMask, mask));
  canvas.mask_token = static_cast<int32_t>(mask);
  if (file.has(kShift)) {
    HEARTH_ASSIGN_OR_RETURN(canvas.shift_logits, file.get<bool>(kShift));
  }
  HEARTH_ASSIGN_OR_RETURN(canvas.steps,
                          small_or(file, "diffusion.steps", kMostCanvasSteps, usual.steps));
  HEARTH_ASSIGN_OR_RETURN(canvas.block_length, small_or(file, "diffusion.block_length",
                                                        kMostCanvasBlock, usual.block_length));
  if (file.has(kRemasking)) {
    HEARTH_ASSIGN_OR_RETURN(const auto name, file.get<std::string_view>(kRemasking));
    const auto rule = remasking_named(name);
    if (!rule) {
      return Error::unsupported(
          fmt::format("{}: \"{}\", want one of confidence, entropy, margin, random, origin",
                      kRemasking, printable(name)));
    }
    canvas.remasking = *rule;
  }
  // K and V are needed only within their layer.
  for (LayerSpec& layer : layers) layer.index = 0;
  for (LayerGroup& group : groups) group.num_layers = 1;
  return {};
}

}  // namespace hearth::models
