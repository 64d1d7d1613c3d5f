// Families that differ from Llama in names, norms, biases or the rotation.

#include <cmath>

#include "kernels/base/numbers.h"
#include "models/convert/config_reader.h"
#include "models/convert/tensor_plan.h"

namespace hearth::models {

Result<void> read_mistral3(ConfigReader& r) {
  const Json* rope = r.rope_object("full_attention");
  if (rope == nullptr) return {};
  HEARTH_ASSIGN_OR_RETURN(const auto growth, number_at(*rope, "llama_4_scaling_beta"));
  if (growth) r.set_factor("attention.temperature_scale", *growth);
  return {};
}

Result<void> plan_glm4(TensorPlanner& p, uint64_t layer) {
  const std::string from = p.from(layer), to = p.to(layer);
  HEARTH_TRY(p.vector(from + "input_layernorm.weight", to + "attn_norm.weight"));
  HEARTH_TRY(p.vector(from + "post_self_attn_layernorm.weight", to + "post_attention_norm.weight"));
  HEARTH_TRY(p.vector(from + "post_attention_layernorm.weight", to + "ffn_norm.weight"));
  HEARTH_TRY(p.vector(from + "post_mlp_layernorm.weight", to + "post_ffw_norm.weight"));
  HEARTH_TRY(p.plan_attention(from + "self_attn.", to));
  return p.plan_feed_forward(from + "mlp.", to);
}

Result<void> read_cohere2(ConfigReader& r) {
  HEARTH_ASSIGN_OR_RETURN(const double scale, want_number(r.config(), "logit_scale"));
  r.set_factor("logit_scale", scale);
  return {};
}

// One norm, which attention and feed-forward share.
Result<void> plan_cohere2(TensorPlanner& p, uint64_t layer) {
  const std::string from = p.from(layer), to = p.to(layer);
  HEARTH_TRY(p.vector(from + "input_layernorm.weight", to + "attn_norm.weight"));
  HEARTH_TRY(p.plan_attention(from + "self_attn.", to));
  return p.plan_feed_forward(from + "mlp.", to);
}

// The large models slide in three of four layers, and those alone use positions.
Result<void> read_exaone4(ConfigReader& r) {
  HEARTH_TRY(r.read_kinds());
  HEARTH_ASSIGN_OR_RETURN(const uint64_t window, r.count_or("sliding_window", 0));
  if (window == 0) return {};
  for (uint64_t i = 0; i < r.keys().kinds.size(); ++i) {
    const bool slides = i % 4 != 3;
    if (r.keys().kinds[i] == (slides ? "sliding_attention" : "full_attention")) continue;
    return unsupported_key("layer_types",
                           "layers in another order than three sliding and one full");
  }
  r.set_count("attention.sliding_window", window);
  return {};
}

Result<void> read_seed_oss(ConfigReader& r) { return r.want_flag("attention_out_bias", false); }

// `alpha` stretches the base.
Result<void> read_hunyuan(ConfigReader& r) {
  const Json* rope = r.rope_object("full_attention");
  if (rope == nullptr) return {};
  HEARTH_ASSIGN_OR_RETURN(const auto alpha, number_at(*rope, "alpha"));
  if (!alpha || *alpha == 0) {
    HEARTH_ASSIGN_OR_RETURN(const auto type, text_at(*rope, "rope_type"));
    if (type == "dynamic") return unsupported_key("rope_type", "dynamic, without alpha");
    return {};
  }
  HEARTH_ASSIGN_OR_RETURN(const double base, r.base_of(rope, "rope_theta", 10000));
  const double dim = as_double(r.head_dim());
  r.set_factor("rope.freq_base", base * std::pow(*alpha, dim / (dim - 2)));
  return {};
}

Result<void> plan_hunyuan(TensorPlanner& p, uint64_t layer) {
  const std::string from = p.from(layer), to = p.to(layer);
  HEARTH_TRY(p.vector(from + "self_attn.query_layernorm.weight", to + "attn_q_norm.weight"));
  HEARTH_TRY(p.vector(from + "self_attn.key_layernorm.weight", to + "attn_k_norm.weight"));
  return p.plan_layer(layer);
}

Result<void> read_starcoder2(ConfigReader& r) { return r.want_flag("use_bias", true); }

Result<void> plan_starcoder2(TensorPlanner& p, uint64_t layer) {
  const std::string from = p.from(layer), to = p.to(layer);
  HEARTH_TRY(p.plan_norms(from, to));
  HEARTH_TRY(p.plan_attention(from + "self_attn.", to));
  return p.plan_gated(from + "mlp.", to, "", {"", "c_fc", "c_proj"});
}

}  // namespace hearth::models
