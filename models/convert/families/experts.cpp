// Families with experts that differ from Mixtral and Qwen 3 in their choice or their names.

#include <fmt/core.h>

#include <utility>

#include "kernels/base/numbers.h"
#include "models/convert/config_reader.h"
#include "models/convert/tensor_plan.h"

namespace hearth::models {
namespace {

Result<void> plan_attention_and_norms(TensorPlanner& p, const std::string& from,
                                      const std::string& to) {
  HEARTH_TRY(p.plan_norms(from, to));
  return p.plan_attention(from + "self_attn.", to);
}

/// Dense, or experts next to one that all tokens use; the choice may have a bias.
Result<void> plan_feed_forward_of_layer(TensorPlanner& p, const std::string& from,
                                        const std::string& to) {
  if (!p.has(from + "gate.weight")) return p.plan_feed_forward(from, to);
  HEARTH_TRY(p.matrix(from + "gate.weight", to + "ffn_gate_inp.weight"));
  HEARTH_TRY(p.maybe_vector(from + "gate.e_score_correction_bias", to + "exp_probs_b.bias"));
  HEARTH_TRY(p.plan_experts(from, to));
  return p.plan_gated(from + "shared_experts.", to, "_shexp");
}

}  // namespace

// ---- Qwen 2

Result<void> read_qwen2_moe(ConfigReader& r) {
  return r.copy_count("shared_expert_intermediate_size", "expert_shared_feed_forward_length");
}

Result<void> plan_qwen2_moe(TensorPlanner& p, uint64_t layer) {
  const std::string from = p.from(layer), to = p.to(layer);
  HEARTH_TRY(p.plan_layer(layer));
  return p.plan_gated_expert(from + "mlp.", to);
}

// ---- gpt-oss: experts in one tensor, in which rows of gate and up take turns. Published files
// have them in blocks of MXFP4; others as matrices that a row is multiplied with from the left.

Result<void> read_gpt_oss(ConfigReader& r) {
  HEARTH_TRY(r.want_value("swiglu_limit", 7));
  HEARTH_TRY(r.want_value("swiglu_alpha", 1.702));
  HEARTH_TRY(r.want_flag("attention_bias", true));
  return r.copy_count("intermediate_size", "expert_feed_forward_length");
}

Result<void> plan_gpt_oss(TensorPlanner& p, uint64_t layer) {
  const std::string from = p.from(layer), to = p.to(layer), moe = from + "mlp.experts.";
  const uint64_t width = p.keys().width, experts = p.keys().num_experts;
  HEARTH_TRY(plan_attention_and_norms(p, from, to));
  HEARTH_TRY(p.vector(from + "self_attn.sinks", to + "attn_sinks.weight"));
  HEARTH_TRY(p.product(from + "mlp.router", to + "ffn_gate_inp"));
  HEARTH_ASSIGN_OR_RETURN(const uint64_t ffn, want_count(p.config(), "intermediate_size"));
  const bool packed = find(p.config(), "quantization_config") != nullptr;
  for (const auto& [name, first] : {std::pair{"gate", uint64_t{0}}, std::pair{"up", uint64_t{1}}}) {
    const uint64_t one = first;
    const std::string target = fmt::format("{}ffn_{}_exps", to, name);
    HEARTH_TRY(p.reshaped(moe + "gate_up_proj_bias", target + ".bias", {experts, 2 * ffn},
                          {ffn, experts},
                          {[one](uint64_t i) { return 2 * i + one; }, nullptr, {}}));
    if (packed) {
      HEARTH_TRY(p.blocks(moe + "gate_up_proj", target + ".weight", {width, ffn, experts}, one, 2));
      continue;
    }
    HEARTH_TRY(p.taken(moe + "gate_up_proj", target + ".weight", {experts, width, 2 * ffn},
                       {width, ffn, experts},
                       {[width, ffn, one](uint64_t i) {
                          const uint64_t col = i % width, row = i / width % ffn;
                          return (i / (width * ffn) * width + col) * 2 * ffn + 2 * row + one;
                        },
                        nullptr,
                        {}}));
  }
  HEARTH_TRY(p.reshaped(moe + "down_proj_bias", to + "ffn_down_exps.bias", {experts, width},
                        {width, experts}));
  if (packed) {
    return p.blocks(moe + "down_proj", to + "ffn_down_exps.weight", {ffn, width, experts}, 0, 1);
  }
  return p.taken(moe + "down_proj", to + "ffn_down_exps.weight", {experts, ffn, width},
                 {ffn, width, experts},
                 {[width, ffn](uint64_t i) {
                    const uint64_t col = i % ffn, row = i / ffn % width;
                    return (i / (width * ffn) * ffn + col) * width + row;
                  },
                  nullptr,
                  {}});
}

// ---- DeepSeek: latent attention. The matrix from the latent values to keys and values is stored
// as two per head, the first one transposed, so that it can be applied to queries.

namespace {

Result<void> read_latent(ConfigReader& r) {
  HEARTH_TRY(r.want_flag("rope_interleave", true));
  HEARTH_ASSIGN_OR_RETURN(const uint64_t rank, r.count("kv_lora_rank"));
  HEARTH_ASSIGN_OR_RETURN(const uint64_t rotated, r.count("qk_rope_head_dim"));
  HEARTH_ASSIGN_OR_RETURN(const uint64_t plain, r.count("qk_nope_head_dim"));
  HEARTH_ASSIGN_OR_RETURN(const uint64_t v_dim, r.count("v_head_dim"));
  HEARTH_ASSIGN_OR_RETURN(const uint64_t q_rank, r.count_or("q_lora_rank", 0));
  if (q_rank > 0) r.set_count("attention.q_lora_rank", q_rank);
  r.set_count("attention.kv_lora_rank", rank);
  r.set_count("attention.head_count_kv", 1);
  r.set_count("attention.key_length", rank + rotated);
  r.set_count("attention.value_length", rank);
  r.set_count("attention.key_length_mla", plain + rotated);
  r.set_count("attention.value_length_mla", v_dim);
  r.set_count("rope.dimension_count", rotated);
  return {};
}

/// Newer files list the layers' kinds, older ones count the dense layers before the others.
Result<uint64_t> num_dense_layers(const ConfigReader& r, uint64_t num_layers) {
  HEARTH_ASSIGN_OR_RETURN(const std::vector<std::string> kinds, r.names("mlp_layer_types"));
  if (kinds.empty()) return r.count_or("first_k_dense_replace", 0);
  uint64_t dense = 0;
  while (dense < num_layers && kinds[dense] == "dense") ++dense;
  for (uint64_t i = dense; i < num_layers; ++i) {
    if (kinds[i] != "sparse") return unsupported_key("mlp_layer_types", kinds[i]);
  }
  return dense;
}

Result<void> read_deepseek_experts(ConfigReader& r) {
  HEARTH_TRY(read_latent(r));
  HEARTH_TRY(r.read_routing({}));
  HEARTH_TRY(r.want_value("moe_layer_freq", 1));
  HEARTH_ASSIGN_OR_RETURN(const uint64_t dense, num_dense_layers(r, r.keys().num_layers));
  r.set_count("leading_dense_block_count", dense);
  return {};
}

}  // namespace

Result<void> read_deepseek2(ConfigReader& r) {
  HEARTH_ASSIGN_OR_RETURN(const auto method, text_at(r.config(), "topk_method"));
  if (method.value_or("greedy") != "greedy") {
    return unsupported_key("topk_method", "a choice by groups");
  }
  return read_deepseek_experts(r);
}

Result<void> read_deepseek3(ConfigReader& r) {
  HEARTH_TRY(read_deepseek_experts(r));
  r.set_count("expert_gating_func", kSigmoid);
  HEARTH_ASSIGN_OR_RETURN(const uint64_t groups, r.count_or("n_group", 1));
  HEARTH_ASSIGN_OR_RETURN(const uint64_t used, r.count_or("topk_group", groups));
  r.set_count("expert_group_count", groups);
  r.set_count("expert_group_used_count", used);
  return {};
}

Result<void> plan_deepseek(TensorPlanner& p, uint64_t layer) {
  const std::string from = p.from(layer), to = p.to(layer), attention = from + "self_attn.";
  const uint64_t heads = p.keys().num_heads;
  HEARTH_ASSIGN_OR_RETURN(const uint64_t rank, want_count(p.config(), "kv_lora_rank"));
  HEARTH_ASSIGN_OR_RETURN(const uint64_t plain, want_count(p.config(), "qk_nope_head_dim"));
  HEARTH_ASSIGN_OR_RETURN(const uint64_t v_dim, want_count(p.config(), "v_head_dim"));
  HEARTH_TRY(p.plan_norms(from, to));
  if (p.has(attention + "q_a_proj.weight")) {
    HEARTH_TRY(p.matrix(attention + "q_a_proj.weight", to + "attn_q_a.weight"));
    HEARTH_TRY(p.vector(attention + "q_a_layernorm.weight", to + "attn_q_a_norm.weight"));
    HEARTH_TRY(p.matrix(attention + "q_b_proj.weight", to + "attn_q_b.weight"));
  } else {
    HEARTH_TRY(p.matrix(attention + "q_proj.weight", to + "attn_q.weight"));
  }
  HEARTH_TRY(p.matrix(attention + "kv_a_proj_with_mqa.weight", to + "attn_kv_a_mqa.weight"));
  HEARTH_TRY(p.vector(attention + "kv_a_layernorm.weight", to + "attn_kv_a_norm.weight"));
  const uint64_t both = plain + v_dim;
  const std::string joined = attention + "kv_b_proj.weight";
  HEARTH_TRY(p.taken(joined, to + "attn_k_b.weight", {heads * both, rank}, {plain, rank, heads},
                     {[=](uint64_t i) {
                        const uint64_t col = i % plain, row = i / plain % rank;
                        return (i / (plain * rank) * both + col) * rank + row;
                      },
                      nullptr,
                      {}}));
  HEARTH_TRY(
      p.taken(joined, to + "attn_v_b.weight", {heads * both, rank}, {rank, v_dim, heads},
              rows(rank, [=](uint64_t row) { return row / v_dim * both + plain + row % v_dim; })));
  HEARTH_TRY(p.product(attention + "o_proj", to + "attn_output"));
  return plan_feed_forward_of_layer(p, from + "mlp.", to);
}

// ---- GLM 4.5

Result<void> read_glm4_moe(ConfigReader& r) {
  HEARTH_TRY(r.read_routing({}));
  HEARTH_TRY(r.want_value("n_group", 1));
  HEARTH_TRY(r.want_value("topk_group", 1));
  r.set_count("expert_gating_func", kSigmoid);
  HEARTH_ASSIGN_OR_RETURN(const uint64_t dense, r.count_or("first_k_dense_replace", 0));
  r.set_count("leading_dense_block_count", dense);
  return {};
}

Result<void> plan_glm4_moe(TensorPlanner& p, uint64_t layer) {
  const std::string from = p.from(layer), to = p.to(layer);
  HEARTH_TRY(plan_attention_and_norms(p, from, to));
  return plan_feed_forward_of_layer(p, from + "mlp.", to);
}

// ---- ERNIE 4.5

Result<void> read_ernie4_5_moe(ConfigReader& r) {
  HEARTH_TRY(r.want_flag("use_bias", false));
  HEARTH_TRY(r.read_routing({"moe_num_experts", "moe_k", "moe_intermediate_size", ""}));
  HEARTH_ASSIGN_OR_RETURN(const uint64_t width, r.count("moe_intermediate_size"));
  HEARTH_ASSIGN_OR_RETURN(const uint64_t shared, r.count_or("moe_num_shared_experts", 0));
  HEARTH_ASSIGN_OR_RETURN(const uint64_t first, r.count_or("moe_layer_start_index", 0));
  const double last = as_double(r.keys().num_layers) - 1;
  HEARTH_ASSIGN_OR_RETURN(const double end, r.number_or("moe_layer_end_index", last));
  if (end >= 0) HEARTH_TRY(r.want_value("moe_layer_end_index", last));  // -1: the last one
  HEARTH_TRY(r.want_value("moe_layer_interval", 1));
  r.set_count("expert_shared_feed_forward_length", width * shared);
  r.set_count("leading_dense_block_count", first);
  r.set_count("interleave_moe_layer_step", 1);
  return {};
}

Result<void> plan_ernie4_5_moe(TensorPlanner& p, uint64_t layer) {
  const std::string from = p.from(layer), to = p.to(layer), moe = from + "mlp.";
  const uint64_t experts = p.keys().num_experts;
  HEARTH_TRY(plan_attention_and_norms(p, from, to));
  if (p.has(moe + "gate.weight")) {
    HEARTH_TRY(p.reshaped(moe + "moe_statics.e_score_correction_bias", to + "exp_probs_b.bias",
                          {1, experts}, {experts}));
  }
  return plan_feed_forward_of_layer(p, moe, to);
}

// ---- MiniMax-01

constexpr std::string_view kLightning = "linear_attention";

Result<void> read_minimax(ConfigReader& r) {
  HEARTH_TRY(r.read_routing({"num_local_experts", "num_experts_per_tok", "intermediate_size", ""}));
  HEARTH_ASSIGN_OR_RETURN(const double scale, r.number_or("full_attn_alpha_factor", 1));
  for (const char* key : {"linear_attn_alpha_factor", "mlp_alpha_factor"}) {
    HEARTH_ASSIGN_OR_RETURN(const double other, r.number_or(key, 1));
    if (other != scale) return unsupported_key(key, "not that of full_attn_alpha_factor");
  }
  for (const char* key : {"full_attn_beta_factor", "linear_attn_beta_factor", "mlp_beta_factor"}) {
    HEARTH_TRY(r.want_value(key, 1));
  }
  r.set_factor("residual_scale", scale);
  HEARTH_TRY(r.read_kinds());
  std::vector<bool> recurrent;
  for (const std::string& kind : r.kinds()) {
    recurrent.push_back(kind == kLightning);
    if (kind != kLightning && kind != "full_attention") return unsupported_key("layer_types", kind);
  }
  if (recurrent.size() != r.num_layers())
    return corrupt_key("layer_types", "a name for each layer");
  r.set("attention.recurrent_layers", std::move(recurrent));
  return {};
}

Result<void> plan_minimax(TensorPlanner& p, uint64_t layer) {
  const std::string from = p.from(layer), to = p.to(layer);
  const std::string mixer = from + "self_attn.", moe = from + "block_sparse_moe.";
  HEARTH_TRY(p.plan_norms(from, to));
  if (p.keys().kinds[layer] == kLightning) {
    // Constants, which follow from the number of heads and layers.
    for (const char* name : {"slope_rate", "query_decay", "key_decay", "diagonal_decay"}) {
      p.leave_out(mixer + name);
    }
    HEARTH_TRY(p.matrix(mixer + "qkv_proj.weight", to + "attn_qkv.weight"));
    HEARTH_TRY(p.matrix(mixer + "output_gate.weight", to + "attn_gate.weight"));
    HEARTH_TRY(p.vector(mixer + "norm.weight", to + "attn_norm_2.weight"));
    HEARTH_TRY(p.matrix(mixer + "out_proj.weight", to + "attn_output.weight"));
  } else {
    HEARTH_TRY(p.plan_attention(mixer, to));
  }
  HEARTH_TRY(p.matrix(moe + "gate.weight", to + "ffn_gate_inp.weight"));
  return p.plan_experts(moe, to, {"w1", "w3", "w2"});
}

// ---- MiniMax M2

Result<void> read_minimax_m2(ConfigReader& r) {
  HEARTH_TRY(r.read_routing({"num_local_experts", "num_experts_per_tok", "intermediate_size", ""}));
  r.set_count("expert_gating_func", kSigmoid);
  HEARTH_ASSIGN_OR_RETURN(const uint64_t rotated, r.count_or("rotary_dim", 0));
  if (rotated > 0) r.set_count("rope.dimension_count", rotated);
  return {};
}

Result<void> plan_minimax_m2(TensorPlanner& p, uint64_t layer) {
  const std::string from = p.from(layer), to = p.to(layer), moe = from + "block_sparse_moe.";
  HEARTH_TRY(plan_attention_and_norms(p, from, to));
  HEARTH_TRY(p.matrix(moe + "gate.weight", to + "ffn_gate_inp.weight"));
  HEARTH_TRY(p.vector(moe + "e_score_correction_bias", to + "exp_probs_b.bias"));
  return p.plan_experts(moe, to, {"w1", "w3", "w2"});
}

}  // namespace hearth::models
