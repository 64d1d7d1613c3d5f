#include "models/llama/llama_config.h"

#include <fmt/format.h>

#include <array>

namespace hearth::models {
namespace {

// Bounds far above real models; they keep all products of two in 64 bits and all sums in 32.
constexpr int32_t kMaxWidth = 1 << 20;
constexpr int32_t kMaxLayers = 1 << 12;
constexpr int32_t kMaxContext = 1 << 28;

Result<int32_t> number(const GgufFile& file, std::string_view key, int32_t most) {
  HEARTH_ASSIGN_OR_RETURN(const uint32_t value, file.get<uint32_t>(key));
  if (value >= 1 && value <= static_cast<uint32_t>(most)) return static_cast<int32_t>(value);
  return Error{ErrorCode::kCorrupt, fmt::format("{}: {}, want 1 to {}", key, value, most), ""};
}

Result<int32_t> number_or(const GgufFile& file, std::string_view key, int32_t most,
                          int32_t fallback) {
  if (!file.has(key)) return fallback;
  return number(file, key, most);
}

Error unsupported(std::string_view key, std::string_view met) {
  return Error{ErrorCode::kUnsupported,
               fmt::format("{}: {}, which this build does not do for architecture llama", key, met),
               ""};
}

// Variations on the architecture that share its name: ignoring one would give wrong text.
Result<void> refuse_variations(const GgufFile& file) {
  HEARTH_ASSIGN_OR_RETURN(const uint32_t experts, file.get_or<uint32_t>("llama.expert_count", 0));
  if (experts > 0) return unsupported("llama.expert_count", fmt::format("{} experts", experts));
  HEARTH_ASSIGN_OR_RETURN(const bool causal, file.get_or("llama.attention.causal", true));
  if (!causal) return unsupported("llama.attention.causal", "false");
  HEARTH_ASSIGN_OR_RETURN(const bool parallel, file.get_or("llama.use_parallel_residual", false));
  if (parallel) return unsupported("llama.use_parallel_residual", "true");
  constexpr std::array<std::string_view, 8> kFactors = {
      "llama.attention.max_alibi_bias", "llama.attention.clamp_kqv",     "llama.attention.scale",
      "llama.attn_logit_softcapping",   "llama.final_logit_softcapping", "llama.logit_scale",
      "llama.residual_scale",           "llama.embedding_scale",
  };
  for (const std::string_view key : kFactors) {
    HEARTH_ASSIGN_OR_RETURN(const float factor, file.get_or(key, 0.0f));
    if (factor != 0.0f) return unsupported(key, fmt::format("{}", factor));
  }
  for (const std::string_view key :
       {"llama.attention.sliding_window_pattern", "llama.attention.head_count_kv",
        "llama.feed_forward_length", "llama.attention.head_count"}) {
    const GgufEntry* entry = file.find(key);
    if (entry != nullptr && entry->type == GgufType::kArray) {
      return unsupported(key, "a value for each layer");
    }
  }
  return {};
}

}  // namespace

Result<LlamaConfig> LlamaConfig::load(const GgufFile& file) {
  HEARTH_TRY(refuse_variations(file));
  LlamaConfig c;
  HEARTH_ASSIGN_OR_RETURN(c.context_length, number(file, "llama.context_length", kMaxContext));
  HEARTH_ASSIGN_OR_RETURN(c.width, number(file, "llama.embedding_length", kMaxWidth));
  HEARTH_ASSIGN_OR_RETURN(c.num_layers, number(file, "llama.block_count", kMaxLayers));
  HEARTH_ASSIGN_OR_RETURN(c.ffn_width, number(file, "llama.feed_forward_length", kMaxWidth));
  HEARTH_ASSIGN_OR_RETURN(c.num_heads, number(file, "llama.attention.head_count", kMaxWidth));
  HEARTH_ASSIGN_OR_RETURN(c.num_kv_heads,
                          number_or(file, "llama.attention.head_count_kv", kMaxWidth, c.num_heads));
  if (c.num_heads % c.num_kv_heads != 0) {
    return Error{ErrorCode::kCorrupt,
                 fmt::format("llama.attention.head_count_kv: {}, want a divisor of the {} heads",
                             c.num_kv_heads, c.num_heads),
                 ""};
  }
  if (!file.has("llama.attention.key_length") && c.width % c.num_heads != 0) {
    return Error{ErrorCode::kCorrupt,
                 fmt::format("llama.attention.head_count: {}, want a divisor of the width {}",
                             c.num_heads, c.width),
                 ""};
  }
  HEARTH_ASSIGN_OR_RETURN(
      c.head_dim, number_or(file, "llama.attention.key_length", kMaxWidth, c.width / c.num_heads));
  HEARTH_ASSIGN_OR_RETURN(const int32_t value_dim,
                          number_or(file, "llama.attention.value_length", kMaxWidth, c.head_dim));
  if (value_dim != c.head_dim) {
    return unsupported("llama.attention.value_length",
                       fmt::format("{} beside keys of {}", value_dim, c.head_dim));
  }
  HEARTH_ASSIGN_OR_RETURN(c.rms_eps, file.get<float>("llama.attention.layer_norm_rms_epsilon"));
  if (c.rms_eps <= 0.0f || c.rms_eps > 1.0f) {
    return Error{ErrorCode::kCorrupt,
                 fmt::format("llama.attention.layer_norm_rms_epsilon: {}, want more than 0 and at "
                             "most 1",
                             c.rms_eps),
                 ""};
  }
  HEARTH_ASSIGN_OR_RETURN(const uint32_t window,
                          file.get_or<uint32_t>("llama.attention.sliding_window", 0));
  // A window that covers the context is none.
  if (window < static_cast<uint32_t>(c.context_length)) c.window = static_cast<int32_t>(window);
  HEARTH_ASSIGN_OR_RETURN(c.rope, RopeConfig::load(file, "llama", c.head_dim));
  return c;
}

}  // namespace hearth::models
