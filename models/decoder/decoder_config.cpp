#include "models/decoder/decoder_config.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "kernels/base/sizes.h"
#include "kernels/ops/recurrent_ops.h"

namespace hearth::models {
namespace {

/// Sets whether the layer has attention, a product in its place, or neither.
Result<void> set_heads(const Metadata& m, LayerSpec& layer, int32_t i, int32_t heads,
                       int32_t kv_heads) {
  if (heads == 0 && kv_heads > 0) {
    return m.corrupt("attention.head_count_kv",
                     fmt::format("{} for layer {}, which has no heads", kv_heads, i));
  }
  if (kv_heads > 0 && heads % kv_heads != 0) {
    return m.corrupt("attention.head_count_kv",
                     fmt::format("{}, want a divisor of the {} heads", kv_heads, heads));
  }
  layer.num_heads = kv_heads > 0 ? heads : 0;
  layer.linear = heads > 0 && kv_heads == 0;
  return {};
}

Result<void> load_layers(Metadata& m, DecoderConfig& c, bool pruned, bool hybrid) {
  const int32_t n = c.num_layers + c.num_draft_layers;
  const int32_t least = pruned || hybrid ? 0 : 1;
  HEARTH_ASSIGN_OR_RETURN(const auto heads, m.numbers("attention.head_count", kMaxWidth, n, least));
  HEARTH_ASSIGN_OR_RETURN(const auto kv_heads,
                          m.numbers_or("attention.head_count_kv", kMaxWidth, heads, least));
  const bool no_ffn = hybrid && !m.has("feed_forward_length");
  HEARTH_ASSIGN_OR_RETURN(
      const auto ffn,
      no_ffn ? std::vector<int32_t>(n, 0) : m.numbers("feed_forward_length", kMaxWidth, n, least));
  const auto first = std::ranges::find_if(heads, [](int32_t count) { return count > 0; });
  if (first == heads.end() && !hybrid) {
    return m.corrupt("attention.head_count", "0 for every layer, want attention in at least one");
  }
  const int32_t usual = first == heads.end() ? 1 : *first;
  if (!m.has("attention.key_length") && c.width % usual != 0) {
    return m.corrupt("attention.head_count",
                     fmt::format("{}, want a divisor of the width {}", usual, c.width));
  }
  HEARTH_ASSIGN_OR_RETURN(const int32_t k_dim,
                          m.number_or("attention.key_length", kMaxWidth, c.width / usual));
  HEARTH_ASSIGN_OR_RETURN(const int32_t v_dim,
                          m.number_or("attention.value_length", kMaxWidth, k_dim));
  for (int32_t i = 0; i < c.num_layers + (c.draft_layer ? 1 : 0); ++i) {
    LayerSpec& layer = c.layers.emplace_back();
    HEARTH_TRY(set_heads(m, layer, i, heads[i], kv_heads[i]));
    layer.kv = {kv_heads[i], k_dim, v_dim};
    layer.ffn_width = ffn[i];
  }
  c.attention_scale = inverse_root(k_dim);
  return {};
}

}  // namespace

Result<DecoderConfig> DecoderConfig::load_common(Metadata& m, const CommonKeys& keys) {
  DecoderConfig c;
  c.architecture = m.architecture();
  HEARTH_ASSIGN_OR_RETURN(c.context_length, m.number("context_length", kMaxContext));
  HEARTH_ASSIGN_OR_RETURN(c.width, m.number("embedding_length", kMaxWidth));
  HEARTH_ASSIGN_OR_RETURN(c.num_layers, m.number("block_count", kMaxLayers));
  HEARTH_ASSIGN_OR_RETURN(c.num_draft_layers, m.small_or("nextn_predict_layers", kMaxLayers, 0));
  if (c.num_draft_layers >= c.num_layers) {
    return m.corrupt("nextn_predict_layers", fmt::format("{}, want fewer than the {} layers",
                                                         c.num_draft_layers, c.num_layers));
  }
  c.num_layers -= c.num_draft_layers;
  c.draft_layer = keys.draft_layer && c.num_draft_layers > 0 && c.width % kernels::kStateLanes == 0;
  HEARTH_TRY(load_layers(m, c, keys.pruned, keys.hybrid));
  c.norm = keys.norm;
  HEARTH_ASSIGN_OR_RETURN(c.eps, m.factor(c.norm == Norm::kRms ? "attention.layer_norm_rms_epsilon"
                                                               : "attention.layer_norm_epsilon",
                                          1));
  c.post_eps = c.eps;
  c.group_layers();
  const bool attends = !c.groups.empty();
  m.know({"rope.dimension_count", "rope.freq_base", "rope.scale_linear", "rope.scaling.type",
          "rope.scaling.factor", "rope.scaling.original_context_length", "rope.scaling.attn_factor",
          "rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow"});
  if (attends) {
    HEARTH_ASSIGN_OR_RETURN(const RopeConfig rope,
                            RopeConfig::load(m.file(), c.architecture, c.layers.front().kv.k_dim));
    c.ropes = {rope};
  }
  if (c.groups.empty() && !keys.hybrid) {
    return m.corrupt("attention.head_count_kv",
                     "0 for every layer, want attention in at least one");
  }
  return c;
}

void DecoderConfig::set_window(int32_t window, const std::function<bool(int32_t)>& slides) {
  for (int32_t i = 0; i < num_layers; ++i) {
    layers[i].window = window < context_length && slides(i) ? window : 0;
  }
  group_layers();
}

void DecoderConfig::rotate_only(const std::function<bool(int32_t)>& rotated) {
  for (int32_t i = 0; i < num_layers; ++i) {
    if (!rotated(i)) layers[i].rope = kNoRope;
  }
}

void DecoderConfig::group_layers() {
  groups.clear();
  for (const bool sliding : {false, true}) {
    for (LayerSpec& layer : layers) {
      if (layer.num_heads == 0 || !layer.stores_kv()) continue;
      if ((layer.window > 0) != sliding) continue;
      const auto same = [&](const LayerGroup& group) {
        return group.window == layer.window && group.kv == layer.kv;
      };
      layer.group = 0;
      while (layer.group < size32(groups) && !same(groups[layer.group])) ++layer.group;
      if (layer.group == size32(groups)) {
        LayerGroup& added = groups.emplace_back();
        added.kind = sliding ? LayerGroup::Kind::kSliding : LayerGroup::Kind::kFull;
        added.window = layer.window;
        added.kv = layer.kv;
      }
      layer.index = groups[layer.group].num_layers++;
    }
  }
  int32_t num_recurrent = 0;
  for (LayerSpec& layer : layers) {
    if (layer.recurrent) layer.state_index = num_recurrent++;
  }
  if (num_recurrent > 0 || draft_layer) {
    LayerGroup& states = groups.emplace_back();
    states.kind = LayerGroup::Kind::kRecurrent;
    states.num_layers = num_recurrent;
    if (num_recurrent > 0) states.state_bytes = recurrent.state_bytes();
    states.hidden_bytes = draft_layer ? int64_t{width} * 4 : 0;
  }
  for (LayerSpec& layer : layers) {
    if (layer.stores_kv()) continue;
    layer.group = layers[layer.kv_owner].group;
    layer.index = layers[layer.kv_owner].index;
    ++groups[layer.group].num_sharing;
  }
}

void DecoderConfig::set_recurrent(const RecurrentConfig& sizes,
                                  const std::function<bool(int32_t)>& is) {
  recurrent = sizes;
  for (int32_t i = 0; i < num_layers; ++i) {
    LayerSpec& layer = layers[i];
    layer.recurrent = is(i);
    if (!layer.recurrent) continue;
    layer.linear = false;
    layer.num_heads = 0;
  }
  group_layers();
}

void DecoderConfig::set_recurrent(const RecurrentConfig& sizes) {
  set_recurrent(sizes, [this](int32_t i) { return layers[i].num_heads == 0; });
}

Result<void> DecoderConfig::load_sliding_rope(Metadata& m,
                                              const std::function<bool(int32_t)>& slides,
                                              int32_t head_dim) {
  constexpr std::string_view kDim = "rope.dimension_count_swa";
  RopeConfig local;
  HEARTH_ASSIGN_OR_RETURN(local.dim, m.number_or(kDim, head_dim, head_dim));
  if (local.dim % 2 != 0) return m.corrupt(kDim, fmt::format("{}, want an even number", local.dim));
  HEARTH_ASSIGN_OR_RETURN(local.base, m.factor_or("rope.freq_base_swa", 1e30f, 10000));
  ropes.push_back(local);
  for (int32_t i = 0; i < num_layers; ++i) layers[i].rope = slides(i) ? 1 : 0;
  return {};
}

Result<void> DecoderConfig::share_kv(Metadata& m, const std::function<bool(int32_t)>& slides) {
  constexpr std::string_view kKey = "attention.shared_kv_layers";
  HEARTH_ASSIGN_OR_RETURN(const int32_t count, m.small_or(kKey, num_layers - 1, 0));
  const int32_t storing = num_layers - count;
  for (int32_t i = storing; i < num_layers; ++i) {
    int32_t owner = storing - 1;
    while (owner >= 0 && slides(owner) != slides(i)) --owner;
    if (owner < 0) {
      return m.corrupt(kKey, fmt::format("{}, but none of the {} layers before them {} as layer {}",
                                         count, storing, slides(i) ? "slides" : "is full", i));
    }
    if (!(layers[owner].kv == layers[i].kv)) {
      return m.corrupt(kKey, fmt::format("{}, but layer {} has heads of other sizes than layer {}, "
                                         "whose keys and values it shares",
                                         count, i, owner));
    }
    layers[i].kv_owner = owner;
  }
  group_layers();
  return {};
}

Result<void> DecoderConfig::load_experts(Metadata& m, bool normalize) {
  constexpr int32_t kMaxExperts = 1 << 12;
  // Values of expert_gating_func; the third is a softmax over the chosen experts alone.
  constexpr uint32_t kSoftmax = 1, kSigmoid = 2, kSoftmaxOfChosen = 3;
  ExpertConfig& e = experts;
  HEARTH_ASSIGN_OR_RETURN(e.count, m.number("expert_count", kMaxExperts));
  HEARTH_ASSIGN_OR_RETURN(e.used, m.number("expert_used_count", e.count));
  HEARTH_ASSIGN_OR_RETURN(
      e.ffn_width, m.number_or("expert_feed_forward_length", kMaxWidth, layers.back().ffn_width));
  HEARTH_ASSIGN_OR_RETURN(e.normalize, m.flag_or("expert_weights_norm", normalize));
  HEARTH_ASSIGN_OR_RETURN(e.scale, m.factor_or("expert_weights_scale", 1e6f, 1));
  const uint32_t usual = e.sigmoid ? kSigmoid : kSoftmax;
  HEARTH_ASSIGN_OR_RETURN(uint32_t gating, m.count_or("expert_gating_func", usual));
  if (gating == 0) gating = usual;
  if (gating > kSoftmaxOfChosen)
    return m.unsupported("expert_gating_func", fmt::format("{}", gating));
  e.sigmoid = gating == kSigmoid;
  e.normalize = e.normalize || gating == kSoftmaxOfChosen;
  HEARTH_ASSIGN_OR_RETURN(const int32_t dense,
                          m.small_or("leading_dense_block_count", kMaxLayers, 0));
  for (int32_t i = dense; i < size32(layers); ++i) {
    layers[i].experts = true;
    if (!e.with_dense) layers[i].ffn_width = 0;
  }
  return {};
}

Result<void> DecoderConfig::load_shared_expert(Metadata& m) {
  constexpr std::string_view kKey = "expert_shared_feed_forward_length";
  HEARTH_ASSIGN_OR_RETURN(const int32_t ffn_width, m.small_or(kKey, kMaxWidth, 0));
  add_shared_expert(ffn_width);
  return {};
}

void DecoderConfig::add_shared_expert(int32_t ffn_width) {
  for (LayerSpec& layer : layers) {
    if (layer.experts) layer.ffn_width = ffn_width;
  }
}

Result<void> DecoderConfig::load_position_scale(Metadata& m, std::string_view length_key) {
  HEARTH_ASSIGN_OR_RETURN(position_scale, m.factor_or("attention.temperature_scale", 1e3f, 0));
  m.know({length_key});
  if (position_scale == 0) return {};
  HEARTH_ASSIGN_OR_RETURN(position_length, m.number(length_key, kMaxContext));
  return {};
}

float root(int32_t n) { return std::sqrt(static_cast<float>(n)); }
float inverse_root(int32_t n) { return 1.0f / root(n); }
float inverse(int32_t n) { return 1.0f / static_cast<float>(n); }

Result<std::function<bool(int32_t)>> sliding_pattern(Metadata& m, int32_t num_layers,
                                                     uint32_t period) {
  constexpr std::string_view kKey = "attention.sliding_window_pattern";
  const bool given = m.has(kKey);
  const GgufEntry* entry = m.file().find(m.full(kKey));
  if (given && entry->type == GgufType::kArray) {
    HEARTH_ASSIGN_OR_RETURN(auto flags, m.flags_or(kKey, num_layers, {}));
    return std::function<bool(int32_t)>(
        [flags = std::move(flags)](int32_t layer) { return flags[layer]; });
  }
  if (given) {
    HEARTH_ASSIGN_OR_RETURN(period, m.count_or(kKey, period));
  }
  return std::function<bool(int32_t)>(
      [period](int32_t layer) { return period == 0 || layer % period != period - 1; });
}

}  // namespace hearth::models
