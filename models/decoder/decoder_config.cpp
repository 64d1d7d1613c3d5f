#include "models/decoder/decoder_config.h"

#include <fmt/core.h>

#include <cmath>
#include <memory>
#include <utility>

namespace hearth::models {
namespace {

LayerGroup group_of(const DecoderConfig& c, int32_t window) {
  LayerGroup group;
  group.kind = window > 0 ? LayerGroup::Kind::kSliding : LayerGroup::Kind::kFull;
  group.window = window;
  group.num_kv_heads = c.num_kv_heads;
  group.head_dim = c.head_dim;
  return group;
}

}  // namespace

Result<DecoderConfig> DecoderConfig::load_common(Metadata& m) {
  DecoderConfig c;
  c.architecture = m.architecture();
  HEARTH_ASSIGN_OR_RETURN(c.context_length, m.number("context_length", kMaxContext));
  HEARTH_ASSIGN_OR_RETURN(c.width, m.number("embedding_length", kMaxWidth));
  HEARTH_ASSIGN_OR_RETURN(c.num_layers, m.number("block_count", kMaxLayers));
  HEARTH_ASSIGN_OR_RETURN(c.ffn_width, m.number("feed_forward_length", kMaxWidth));
  HEARTH_ASSIGN_OR_RETURN(c.num_heads, m.number("attention.head_count", kMaxWidth));
  HEARTH_ASSIGN_OR_RETURN(c.num_kv_heads,
                          m.number_or("attention.head_count_kv", kMaxWidth, c.num_heads));
  if (c.num_heads % c.num_kv_heads != 0) {
    return m.corrupt("attention.head_count_kv", fmt::format("{}, want a divisor of the {} heads",
                                                            c.num_kv_heads, c.num_heads));
  }
  if (!m.has("attention.key_length") && c.width % c.num_heads != 0) {
    return m.corrupt("attention.head_count",
                     fmt::format("{}, want a divisor of the width {}", c.num_heads, c.width));
  }
  HEARTH_ASSIGN_OR_RETURN(c.head_dim,
                          m.number_or("attention.key_length", kMaxWidth, c.width / c.num_heads));
  HEARTH_ASSIGN_OR_RETURN(const int32_t value_dim,
                          m.number_or("attention.value_length", kMaxWidth, c.head_dim));
  if (value_dim != c.head_dim) {
    return m.unsupported("attention.value_length",
                         fmt::format("{} with keys of {}", value_dim, c.head_dim));
  }
  HEARTH_ASSIGN_OR_RETURN(c.rms_eps, m.factor("attention.layer_norm_rms_epsilon", 1));
  HEARTH_ASSIGN_OR_RETURN(const RopeConfig rope,
                          RopeConfig::load(m.file(), c.architecture, c.head_dim));
  m.know({"rope.dimension_count", "rope.freq_base", "rope.scale_linear", "rope.scaling.type",
          "rope.scaling.factor", "rope.scaling.original_context_length", "rope.scaling.attn_factor",
          "rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow"});
  c.ropes = {rope};
  c.attention_scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
  c.layers.resize(c.num_layers);
  c.set_window(0, [](int32_t) { return false; });
  return c;
}

void DecoderConfig::set_window(int32_t window, const std::function<bool(int32_t)>& slides) {
  if (window >= context_length) window = 0;
  LayerGroup full = group_of(*this, 0);
  LayerGroup sliding = group_of(*this, window);
  for (int32_t i = 0; i < num_layers; ++i) {
    const bool in_window = window > 0 && slides(i);
    LayerSpec& layer = layers[i];
    layer.group = in_window ? 1 : 0;
    layer.index = in_window ? sliding.num_layers++ : full.num_layers++;
  }
  groups.clear();
  if (full.num_layers > 0) groups.push_back(full);
  if (sliding.num_layers > 0) groups.push_back(sliding);
  if (full.num_layers > 0) return;
  for (LayerSpec& layer : layers) layer.group = 0;
}

bool DecoderConfig::is_sliding(int32_t layer) const {
  const int32_t group = layers[layer].group;
  return groups[group].kind == LayerGroup::Kind::kSliding;
}

Result<ExpertConfig> load_experts(Metadata& m, const DecoderConfig& c, bool normalize) {
  constexpr int32_t kMaxExperts = 1 << 12;
  constexpr uint32_t kSoftmax = 1;
  ExpertConfig e;
  HEARTH_ASSIGN_OR_RETURN(e.count, m.number("expert_count", kMaxExperts));
  HEARTH_ASSIGN_OR_RETURN(e.used, m.number("expert_used_count", e.count));
  HEARTH_ASSIGN_OR_RETURN(e.ffn_width,
                          m.number_or("expert_feed_forward_length", kMaxWidth, c.ffn_width));
  HEARTH_ASSIGN_OR_RETURN(e.normalize, m.flag_or("expert_weights_norm", normalize));
  HEARTH_ASSIGN_OR_RETURN(e.scale, m.factor_or("expert_weights_scale", 1e6f, 1));
  HEARTH_ASSIGN_OR_RETURN(const uint32_t gating, m.count_or("expert_gating_func", kSoftmax));
  if (gating > kSoftmax) return m.unsupported("expert_gating_func", fmt::format("{}", gating));
  return e;
}

Result<std::function<bool(int32_t)>> sliding_pattern(Metadata& m, int32_t num_layers,
                                                     uint32_t period) {
  constexpr std::string_view kKey = "attention.sliding_window_pattern";
  const bool given = m.has(kKey);
  const GgufEntry* entry = m.file().find(m.full(kKey));
  if (given && entry->type == GgufType::kArray) {
    if (entry->element_type != GgufType::kBool || std::cmp_not_equal(entry->count, num_layers)) {
      return m.corrupt(kKey, fmt::format("an array of {} {}, want a bool for each of the {} layers",
                                         entry->count, name(entry->element_type), num_layers));
    }
    auto flags = std::make_shared<std::vector<bool>>();
    for (int32_t i = 0; i < num_layers; ++i) flags->push_back(entry->payload[i] != std::byte{0});
    return std::function<bool(int32_t)>([flags](int32_t layer) { return (*flags)[layer]; });
  }
  if (given) {
    HEARTH_ASSIGN_OR_RETURN(period, m.count_or(kKey, period));
  }
  return std::function<bool(int32_t)>(
      [period](int32_t layer) { return period == 0 || layer % period != period - 1; });
}

}  // namespace hearth::models
