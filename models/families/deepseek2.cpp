#include <fmt/core.h>

#include <cmath>

#include "models/decoder/decoder.h"
#include "models/families/families.h"
#include "models/families/latent.h"

// DeepSeek V2 and V3, and what follows them (GLM-4.7-Flash, Kimi K2, Mistral Large 3, Mistral 4):
// multi-head latent attention (decoder/latent_attention.cpp), rotated pairs are neighbours; after
// the leading dense layers experts, chosen by softmax or by sigmoid with a learned bias and in
// groups, and one that all tokens use.
//
// Scores are scaled by 1 / sqrt(plain + rotated), and for a stretched context by the square of
// 1 + rope.scaling.yarn_log_multiplier * ln(factor), in place of YaRN's magnitude of the rotation.
//
// Queries grow with their position, as in mistral3.cpp, if the file has a temperature_scale.
//
// Source: DeepSeek-AI 2024 (DeepSeek-V2) section 2; 2024 (DeepSeek-V3) section 2.1.

namespace hearth::models {
namespace {

constexpr int32_t kMaxExpertGroups = 1 << 12;

}  // namespace

Result<void> load_latent(Metadata& m, DecoderConfig& c) {
  LatentAttention& a = c.latent;
  if (m.has("attention.q_lora_rank")) {
    HEARTH_ASSIGN_OR_RETURN(a.q_rank, m.number("attention.q_lora_rank", kMaxWidth));
  }
  HEARTH_ASSIGN_OR_RETURN(a.kv_rank, m.number("attention.kv_lora_rank", kMaxWidth));
  HEARTH_ASSIGN_OR_RETURN(const int32_t head_dim, m.number("attention.key_length_mla", kMaxWidth));
  HEARTH_ASSIGN_OR_RETURN(a.v_dim, m.number("attention.value_length_mla", kMaxWidth));
  a.rotated = c.ropes.front().dim;
  if (head_dim <= a.rotated) {
    return m.corrupt("attention.key_length_mla",
                     fmt::format("{}, want more than the {} rotated values", head_dim, a.rotated));
  }
  a.plain = head_dim - a.rotated;
  const kernels::KvShape stored{1, a.kv_rank + a.rotated, a.kv_rank, true};
  const int32_t most = c.most([](const LayerSpec& layer) { return layer.num_heads; });
  for (LayerSpec& layer : c.layers) {
    if (layer.kv.k_dim != stored.k_dim || layer.kv.v_dim != stored.v_dim) {
      return m.corrupt("attention.key_length",
                       fmt::format("{} with values of {}, want {} and {}", layer.kv.k_dim,
                                   layer.kv.v_dim, stored.k_dim, stored.v_dim));
    }
    if (layer.num_heads > 0 && layer.num_heads != most) {
      return m.unsupported("attention.head_count", "layers that differ");
    }
    layer.kv = stored;
  }
  c.group_layers();
  c.attention_scale = inverse_root(head_dim);
  RopeConfig& rope = c.ropes.front();
  HEARTH_ASSIGN_OR_RETURN(const float multiplier,
                          m.factor_or("rope.scaling.yarn_log_multiplier", 1e3f, 0));
  if (rope.scaling == RopeConfig::Scaling::kYarn && multiplier > 0) {
    const float magnitude = 1 + multiplier * std::log(rope.factor);
    c.attention_scale *= magnitude * magnitude;
    rope.attention_factor = 1 / (1 + 0.1f * std::log(rope.factor));
  }
  return {};
}

Result<void> load_routing(Metadata& m, DecoderConfig& c, bool normalize) {
  HEARTH_TRY(c.load_experts(m, normalize));
  ExpertConfig& e = c.experts;
  HEARTH_ASSIGN_OR_RETURN(e.num_groups, m.number_or("expert_group_count", kMaxExpertGroups, 1));
  HEARTH_ASSIGN_OR_RETURN(e.groups_used,
                          m.number_or("expert_group_used_count", e.num_groups, e.num_groups));
  if (e.count % e.num_groups != 0 || e.count / e.num_groups * e.groups_used < e.used) {
    return m.corrupt("expert_group_count",
                     fmt::format("{} of {} experts, {} used, for {} choices", e.num_groups, e.count,
                                 e.groups_used, e.used));
  }
  HEARTH_ASSIGN_OR_RETURN(const int32_t shared, m.number_or("expert_shared_count", 64, 1));
  c.add_shared_expert(shared * e.ffn_width);
  return {};
}

namespace {

Result<std::unique_ptr<Model>> load_as(std::string_view architecture, const GgufFile& file,
                                       const kernels::OpTable& ops, const LoadProgressFn& progress,
                                       const LoadOptions& options) {
  Metadata m(file, architecture);
  HEARTH_ASSIGN_OR_RETURN(DecoderConfig c,
                          DecoderConfig::load_common(m, {.draft_layer = options.draft_layer}));
  HEARTH_TRY(load_latent(m, c));
  HEARTH_TRY(load_routing(m, c, false));
  HEARTH_TRY(c.load_position_scale(m, "attention.temperature_length"));
  HEARTH_TRY(m.refuse_others());
  c.pairs = kernels::RopePairs::kNeighbours;
  return load_decoder<LatentDecoder>(file, c, ops, progress, options);
}

}  // namespace

Result<std::unique_ptr<Model>> load_deepseek2(const GgufFile& file, const kernels::OpTable& ops,
                                              const LoadProgressFn& progress,
                                              const LoadOptions& options) {
  return load_as("deepseek2", file, ops, progress, options);
}

Result<std::unique_ptr<Model>> load_mistral4(const GgufFile& file, const kernels::OpTable& ops,
                                             const LoadProgressFn& progress,
                                             const LoadOptions& options) {
  return load_as("mistral4", file, ops, progress,
                 {.layers = options.layers, .share = options.share});
}

}  // namespace hearth::models
