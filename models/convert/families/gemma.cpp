// Gemma 3n and Gemma 4: inputs per layer, shared KV, heads of two sizes.

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <optional>
#include <utility>

#include "kernels/base/numbers.h"
#include "models/convert/config_reader.h"
#include "models/convert/tensor_plan.h"

namespace hearth::models {
namespace {

constexpr std::string_view kSliding = "sliding_attention", kFull = "full_attention";
/// A divisor by which a pair does not rotate.
constexpr double kStill = 1e30f;

Result<void> read_pattern(ConfigReader& r) {
  HEARTH_TRY(r.read_kinds());
  std::vector<bool> slides;
  for (const std::string& kind : r.keys().kinds) {
    if (kind != kSliding && kind != kFull) return unsupported_key("layer_types", kind);
    slides.push_back(kind == kSliding);
  }
  if (slides.empty()) return corrupt_key("layer_types", "a name for each layer");
  r.set("attention.sliding_window_pattern", std::move(slides));
  HEARTH_TRY(r.copy_count("sliding_window", "attention.sliding_window"));
  HEARTH_ASSIGN_OR_RETURN(const double local,
                          r.base_of(r.rope_object(kSliding), "rope_local_base_freq", 10000));
  r.set_factor("rope.freq_base_swa", local);
  HEARTH_ASSIGN_OR_RETURN(const uint64_t shared, r.count_or("num_kv_shared_layers", 0));
  if (shared >= r.keys().num_layers)
    return corrupt_key("num_kv_shared_layers", "fewer than layers");
  r.set_count("attention.shared_kv_layers", shared);
  HEARTH_ASSIGN_OR_RETURN(const uint64_t per_layer, r.count_or("hidden_size_per_layer_input", 0));
  r.set_count("embedding_length_per_layer_input", per_layer);
  return {};
}

/// The value below which a share `p` of normally distributed numbers lies, by Newton's method.
double quantile(double p) {
  double x = 0;
  for (int i = 0; i < 100; ++i) {
    const double below = 0.5 * std::erfc(-x / std::numbers::sqrt2);
    const double density = std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi);
    const double step = (below - p) / density;
    x -= step;
    if (std::fabs(step) < 1e-15) break;
  }
  return x;
}

/// The widths of each layer's feed-forward: one number, or a list.
Result<std::vector<int32_t>> ffn_widths(const ConfigReader& r) {
  constexpr uint64_t kMost = 1 << 24;
  const size_t num_layers = r.num_layers();
  const Json* widths = find(r.config(), "intermediate_size");
  std::vector<int32_t> out;
  for (size_t i = 0; widths != nullptr && i < num_layers; ++i) {
    const Json* width = widths;
    if (widths->is_array()) width = i < widths->size() ? &(*widths)[i] : nullptr;
    if (width == nullptr || !width->is_number_unsigned() || width->get<uint64_t>() > kMost) break;
    out.push_back(width->get<int32_t>());
  }
  if (out.size() == num_layers) return out;
  return corrupt_key("intermediate_size", "a width, or one for each layer");
}

Result<void> plan_layer_inputs(TensorPlanner& p, const std::string& from, const std::string& to) {
  if (!p.has(from + "per_layer_input_gate.weight")) return {};
  HEARTH_TRY(p.matrix(from + "per_layer_input_gate.weight", to + "inp_gate.weight"));
  HEARTH_TRY(p.matrix(from + "per_layer_projection.weight", to + "proj.weight"));
  return p.vector(from + "post_per_layer_input_norm.weight", to + "post_norm.weight");
}

/// Keys and values may be another layer's, or values the keys.
Result<void> plan_shared_attention(TensorPlanner& p, const std::string& attention,
                                   const std::string& to) {
  for (const auto& [name, target] : {std::pair{"q", "attn_q"}, std::pair{"k", "attn_k"},
                                     std::pair{"v", "attn_v"}, std::pair{"o", "attn_output"}}) {
    const std::string projection = fmt::format("{}{}_proj", attention, name);
    const bool always = *name == 'q' || *name == 'o';
    if (always || p.has(projection + ".weight")) HEARTH_TRY(p.product(projection, to + target));
  }
  HEARTH_TRY(p.vector(attention + "q_norm.weight", to + "attn_q_norm.weight"));
  HEARTH_TRY(p.maybe_vector(attention + "k_norm.weight", to + "attn_k_norm.weight"));
  return {};
}

Result<void> plan_inputs(TensorPlanner& p) {
  if (!p.has("model.embed_tokens_per_layer.weight")) return {};
  HEARTH_TRY(p.matrix("model.embed_tokens_per_layer.weight", "per_layer_token_embd.weight"));
  HEARTH_TRY(p.matrix("model.per_layer_model_projection.weight", "per_layer_model_proj.weight"));
  return p.vector("model.per_layer_projection_norm.weight", "per_layer_proj_norm.weight");
}

}  // namespace

// ---- Gemma 3n

Result<void> read_gemma3n(ConfigReader& r) {
  HEARTH_TRY(read_pattern(r));
  HEARTH_ASSIGN_OR_RETURN(std::vector<int32_t> widths, ffn_widths(r));
  r.set("feed_forward_length", std::move(widths));
  HEARTH_TRY(r.copy_count("altup_num_inputs", "altup.num_inputs"));
  HEARTH_TRY(r.copy_count("altup_active_idx", "altup.active_idx"));
  HEARTH_TRY(r.want_flag("altup_correct_scale", true));
  const Json* shares = find(r.config(), "activation_sparsity_pattern");
  std::vector<double> cutoffs;
  for (uint64_t i = 0; i < r.keys().num_layers; ++i) {
    const Json* share = shares;
    if (shares != nullptr && shares->is_array()) {
      share = i < shares->size() ? &(*shares)[i] : nullptr;
    }
    const double value = share != nullptr && share->is_number() ? share->get<double>() : -1;
    if (!(value >= 0 && value < 1)) {
      return corrupt_key("activation_sparsity_pattern", "a share below 1 for each layer");
    }
    cutoffs.push_back(value == 0 ? -std::numeric_limits<double>::infinity() : quantile(value));
  }
  r.set_factors("activation_sparsity_scale", cutoffs);
  return {};
}

Result<void> plan_gemma3n_rest(TensorPlanner& p) {
  HEARTH_TRY(plan_inputs(p));
  HEARTH_ASSIGN_OR_RETURN(const uint64_t streams, want_count(p.config(), "altup_num_inputs"));
  if (streams < 2 || streams > 16) return corrupt_key("altup_num_inputs", "2 to 16");
  for (const auto& [name, target] :
       {std::pair{"altup_projections", "altup_proj.weight"},
        std::pair{"altup_unembed_projections", "altup_unembd_proj.weight"}}) {
    std::vector<std::string> names;
    for (uint64_t i = 0; i + 1 < streams; ++i) {
      names.push_back(fmt::format("model.{}.{}.weight", name, i));
    }
    HEARTH_TRY(p.stack(names, target));
  }
  return {};
}

Result<void> plan_gemma3n(TensorPlanner& p, uint64_t layer) {
  const std::string from = p.from(layer), to = p.to(layer);
  HEARTH_TRY(p.plan_norms(from, to));
  HEARTH_TRY(plan_shared_attention(p, from + "self_attn.", to));
  HEARTH_TRY(p.plan_feed_forward(from + "mlp.", to));
  HEARTH_TRY(plan_layer_inputs(p, from, to));
  for (const auto& [name, target] : {std::pair{"altup.modality_router", "altup_router"},
                                     std::pair{"altup.prediction_coefs", "altup_predict_coef"},
                                     std::pair{"altup.correction_coefs", "altup_correct_coef"},
                                     std::pair{"laurel.linear_left", "laurel_l"},
                                     std::pair{"laurel.linear_right", "laurel_r"}}) {
    HEARTH_TRY(p.product(from + name, to + target));
  }
  HEARTH_TRY(p.vector(from + "altup.correct_output_scale", to + "altup_correct_scale.weight"));
  HEARTH_TRY(p.vector(from + "altup.router_norm.weight", to + "altup_router_norm.weight"));
  return p.vector(from + "laurel.post_laurel_norm.weight", to + "laurel_post_norm.weight");
}

// ---- Gemma 4. Of the heads of full layers only the first pairs rotate.

namespace {

/// A number of a full layer: newer files have an object per layer, older ones a key for all.
Result<uint64_t> of_full_layers(const ConfigReader& r, std::string_view key, std::string_view older,
                                uint64_t fallback) {
  HEARTH_ASSIGN_OR_RETURN(const uint64_t out, r.count_or(older, fallback));
  const Json* layers = find(r.config(), "per_layer_config");
  std::optional<uint64_t> seen;
  for (size_t i = 0; layers != nullptr && i < r.kinds().size(); ++i) {
    const Json* own = find(*layers, fmt::format("{}", i));
    if (own == nullptr) continue;
    HEARTH_ASSIGN_OR_RETURN(const auto value, count_at(*own, key));
    if (!value) continue;
    if (r.kinds()[i] != kFull || (seen && *seen != *value)) {
      return unsupported_key("per_layer_config", fmt::format("{} of layer {}", key, i));
    }
    seen = value;
  }
  return seen.value_or(out);
}

}  // namespace

Result<void> read_gemma4(ConfigReader& r) {
  HEARTH_TRY(read_pattern(r));
  const uint64_t dim = r.head_dim(), kv_heads = r.keys().num_kv_heads;
  HEARTH_ASSIGN_OR_RETURN(const uint64_t full_dim,
                          of_full_layers(r, "head_dim", "global_head_dim", dim));
  HEARTH_ASSIGN_OR_RETURN(
      const uint64_t full_heads,
      of_full_layers(r, "num_key_value_heads", "num_global_key_value_heads", kv_heads));
  if (full_heads > (1u << 16)) return corrupt_key("num_global_key_value_heads", "at most 65536");
  if (full_dim < 2 || full_dim % 2 != 0 || full_dim > (1u << 16)) {
    return corrupt_key("global_head_dim", "an even number");
  }
  r.set_count("attention.key_length", full_dim);
  r.set_count("attention.value_length", full_dim);
  r.set_count("attention.key_length_swa", dim);
  r.set_count("attention.value_length_swa", dim);
  r.set_count("rope.dimension_count", full_dim);
  r.set_count("rope.dimension_count_swa", dim);
  HEARTH_ASSIGN_OR_RETURN(const bool wide, r.flag_or("use_double_wide_mlp", false));
  HEARTH_ASSIGN_OR_RETURN(const uint64_t shared, r.count_or("num_kv_shared_layers", 0));
  HEARTH_ASSIGN_OR_RETURN(std::vector<int32_t> widths, ffn_widths(r));
  std::vector<int32_t> heads;
  for (uint64_t i = 0; i < r.keys().num_layers; ++i) {
    heads.push_back(narrow<int32_t>(r.kinds()[i] == kFull ? full_heads : kv_heads));
    if (wide && i >= r.keys().num_layers - shared) widths[i] *= 2;
  }
  r.set("attention.head_count_kv", std::move(heads));
  r.set("feed_forward_length", std::move(widths));

  const Json* rope = r.rope_object(kFull);
  const Json empty = Json::object();
  const Json& turns = rope == nullptr ? empty : *rope;
  HEARTH_ASSIGN_OR_RETURN(const double base, r.base_of(rope, "rope_theta", 1e6));
  HEARTH_ASSIGN_OR_RETURN(const auto kind, text_at(turns, "rope_type"));
  HEARTH_ASSIGN_OR_RETURN(const auto factor, number_at(turns, "factor"));
  HEARTH_ASSIGN_OR_RETURN(const auto share, number_at(turns, "partial_rotary_factor"));
  const bool proportional = kind == "proportional";
  if (!proportional && kind.value_or("default") != "default") {
    return unsupported_key("rope_type", *kind);
  }
  const double rotated = proportional ? share.value_or(1) : 1;
  if (!(rotated > 0 && rotated <= 1) || !(factor.value_or(1) > 0)) {
    return corrupt_key("partial_rotary_factor, factor", "above 0");
  }
  r.set_factor("rope.freq_base", base);
  const auto turning = whole(rotated * as_double(full_dim) / 2);
  std::vector<double> divisors(full_dim / 2, kStill);
  std::fill_n(divisors.begin(), std::min<uint64_t>(turning, divisors.size()), factor.value_or(1));
  r.add_vector("rope_freqs.weight", divisors);
  HEARTH_ASSIGN_OR_RETURN(const bool experts, r.flag_or("enable_moe_block", false));
  if (!experts) return {};
  return r.read_routing({"num_experts", "top_k_experts", "moe_intermediate_size", ""});
}

Result<void> plan_gemma4_rest(TensorPlanner& p) { return plan_inputs(p); }

Result<void> plan_gemma4(TensorPlanner& p, uint64_t layer) {
  const std::string from = p.from(layer), to = p.to(layer);
  HEARTH_TRY(p.plan_norms(from, to));
  HEARTH_TRY(plan_shared_attention(p, from + "self_attn.", to));
  HEARTH_TRY(p.vector(from + "layer_scalar", to + "layer_output_scale.weight"));
  HEARTH_TRY(p.plan_feed_forward(from + "mlp.", to));
  HEARTH_TRY(plan_layer_inputs(p, from, to));
  if (!p.has(from + "router.proj.weight")) return {};
  HEARTH_TRY(p.matrix(from + "router.proj.weight", to + "ffn_gate_inp.weight"));
  HEARTH_TRY(p.vector(from + "router.scale", to + "ffn_gate_inp.scale"));
  HEARTH_TRY(p.vector(from + "router.per_expert_scale", to + "ffn_down_exps.scale"));
  HEARTH_TRY(p.want(from + "experts.gate_up_proj", to + "ffn_gate_up_exps.weight", 3));
  HEARTH_TRY(p.want(from + "experts.down_proj", to + "ffn_down_exps.weight", 3));
  HEARTH_TRY(p.vector(from + "pre_feedforward_layernorm_2.weight", to + "pre_ffw_norm_2.weight"));
  HEARTH_TRY(p.vector(from + "post_feedforward_layernorm_1.weight", to + "post_ffw_norm_1.weight"));
  return p.vector(from + "post_feedforward_layernorm_2.weight", to + "post_ffw_norm_2.weight");
}

}  // namespace hearth::models
