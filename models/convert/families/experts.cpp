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
                                        const std::string& to, const ExpertNames& names = {}) {
  if (!p.has(from + "gate.weight")) return p.plan_feed_forward(from, to);
  HEARTH_TRY(p.matrix(from + "gate.weight", to + "ffn_gate_inp.weight"));
  HEARTH_TRY(p.maybe_vector(from + "gate.e_score_correction_bias", to + "exp_probs_b.bias"));
  HEARTH_TRY(p.plan_experts(from, to, names));
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

/// `attention`: the beginning of the published names.
Result<void> plan_latent(TensorPlanner& p, const std::string& attention, const std::string& to) {
  const uint64_t heads = p.keys().num_heads;
  HEARTH_ASSIGN_OR_RETURN(const uint64_t rank, want_count(p.config(), "kv_lora_rank"));
  HEARTH_ASSIGN_OR_RETURN(const uint64_t plain, want_count(p.config(), "qk_nope_head_dim"));
  HEARTH_ASSIGN_OR_RETURN(const uint64_t v_dim, want_count(p.config(), "v_head_dim"));
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
  return p.product(attention + "o_proj", to + "attn_output");
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
  HEARTH_TRY(r.want_flag("rope_interleave", true));
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
  const std::string from = p.from(layer), to = p.to(layer);
  HEARTH_TRY(p.plan_norms(from, to));
  HEARTH_TRY(plan_latent(p, from + "self_attn.", to));
  return plan_feed_forward_of_layer(p, from + "mlp.", to);
}

// ---- Kimi Linear: Kimi delta attention, and latent attention without positions

namespace {

constexpr const char* kLinearAttention = "linear_attn_config";
constexpr std::string_view kKimiDelta = "kda_layers", kKimiLatent = "full_attn_layers";

/// The object with the sizes of Kimi delta attention, and the layers that have it.
Result<const Json*> linear_attention(const Json& config) {
  const Json* found = find(config, kLinearAttention);
  if (found == nullptr) return corrupt_key(kLinearAttention, "an object");
  return found;
}

/// Two lists, which count from 1, name each layer once.
Result<void> read_kimi_kinds(ConfigReader& r, const Json& linear) {
  std::vector<std::string>& kinds = r.keys().kinds;
  kinds.resize(r.num_layers());
  for (const std::string_view kind : {kKimiDelta, kKimiLatent}) {
    const Json* list = find(linear, kind);
    if (list == nullptr || !list->is_array()) return corrupt_key(kind, "a list of layers");
    for (const Json& number : *list) {
      const uint64_t layer = number.is_number_unsigned() ? number.get<uint64_t>() : 0;
      if (layer == 0 || layer > kinds.size() || !kinds[layer - 1].empty()) {
        return corrupt_key(kind, fmt::format("numbers of 1 to {}, each once", kinds.size()));
      }
      kinds[layer - 1] = kind;
    }
  }
  for (size_t i = 0; i < kinds.size(); ++i) {
    if (kinds[i].empty()) {
      return corrupt_key(kLinearAttention, fmt::format("layer {} in a list", i + 1));
    }
  }
  return {};
}

Result<void> plan_kimi_delta(TensorPlanner& p, const std::string& mixer, const std::string& to) {
  HEARTH_ASSIGN_OR_RETURN(const Json* linear, linear_attention(p.config()));
  HEARTH_ASSIGN_OR_RETURN(const uint64_t taps, want_count(*linear, "short_conv_kernel_size"));
  HEARTH_ASSIGN_OR_RETURN(const uint64_t dim, want_count(*linear, "head_dim"));
  const uint64_t heads = p.keys().num_heads, inner = heads * dim;
  for (const char letter : std::string_view("qkv")) {
    HEARTH_TRY(p.matrix(fmt::format("{}{}_proj.weight", mixer, letter),
                        fmt::format("{}attn_{}.weight", to, letter)));
    HEARTH_TRY(p.reshaped(fmt::format("{}{}_conv1d.weight", mixer, letter),
                          fmt::format("{}ssm_conv1d_{}.weight", to, letter), {inner, 1, taps},
                          {taps, 1, inner}));
  }
  for (const auto& [name, target] :
       {std::pair{"f_a_proj", "ssm_f_a"}, std::pair{"f_b_proj", "ssm_f_b"},
        std::pair{"g_a_proj", "ssm_g_a"}, std::pair{"g_b_proj", "ssm_g_b"},
        std::pair{"b_proj", "ssm_beta"}, std::pair{"o_proj", "attn_output"}}) {
    HEARTH_TRY(
        p.matrix(fmt::format("{}{}.weight", mixer, name), fmt::format("{}{}.weight", to, target)));
  }
  HEARTH_TRY(p.joined({mixer + "A_log"}, to + "ssm_a", heads, {1, heads}, minus_exp()));
  HEARTH_TRY(p.flat(mixer + "dt_bias", to + "ssm_dt.bias", inner));
  return p.flat(mixer + "o_norm.weight", to + "ssm_norm.weight", dim);
}

}  // namespace

Result<void> read_kimi_linear(ConfigReader& r) {
  HEARTH_ASSIGN_OR_RETURN(const bool unrotated, r.flag_or("mla_use_nope", false));
  if (!unrotated) return unsupported_key("mla_use_nope", "false");
  HEARTH_ASSIGN_OR_RETURN(const auto choice, text_at(r.config(), "moe_router_activation_func"));
  if (choice.value_or("sigmoid") != "sigmoid") {
    return unsupported_key("moe_router_activation_func", printable(*choice));
  }
  HEARTH_TRY(r.want_value("moe_layer_freq", 1));
  HEARTH_ASSIGN_OR_RETURN(const Json* linear, linear_attention(r.config()));
  HEARTH_ASSIGN_OR_RETURN(const uint64_t heads, want_count(*linear, "num_heads"));
  if (heads != r.keys().num_heads) {
    return unsupported_key("num_heads", fmt::format("{}, not num_attention_heads", heads));
  }
  HEARTH_TRY(read_kimi_kinds(r, *linear));
  HEARTH_TRY(read_latent(r));
  r.keys().num_kv_heads = 1;  // all heads of latent attention share its keys
  r.set_kv_heads(kKimiLatent);
  HEARTH_ASSIGN_OR_RETURN(const uint64_t taps, want_count(*linear, "short_conv_kernel_size"));
  HEARTH_ASSIGN_OR_RETURN(const uint64_t dim, want_count(*linear, "head_dim"));
  r.set_count("ssm.conv_kernel", taps);
  r.set_count("kda.head_dim", dim);
  HEARTH_TRY(r.read_routing(
      {"num_experts", "num_experts_per_token", "moe_intermediate_size", "num_shared_experts"}));
  r.set_count("expert_gating_func", kSigmoid);
  HEARTH_ASSIGN_OR_RETURN(const bool normalized, r.flag_or("moe_renormalize", true));
  r.set("expert_weights_norm", normalized);
  HEARTH_ASSIGN_OR_RETURN(const uint64_t groups, r.count_or("num_expert_group", 1));
  HEARTH_ASSIGN_OR_RETURN(const uint64_t used, r.count_or("topk_group", groups));
  r.set_count("expert_group_count", groups);
  r.set_count("expert_group_used_count", used);
  HEARTH_ASSIGN_OR_RETURN(const uint64_t dense, num_dense_layers(r, r.num_layers()));
  r.set_count("leading_dense_block_count", dense);
  return {};
}

Result<void> plan_kimi_linear(TensorPlanner& p, uint64_t layer) {
  const std::string from = p.from(layer), to = p.to(layer), mixer = from + "self_attn.";
  HEARTH_TRY(p.plan_norms(from, to));
  HEARTH_TRY(p.keys().kinds[layer] == kKimiLatent ? plan_latent(p, mixer, to)
                                                  : plan_kimi_delta(p, mixer, to));
  if (p.has(from + "mlp.gate_proj.weight")) return p.plan_feed_forward(from + "mlp.", to);
  return plan_feed_forward_of_layer(p, from + "block_sparse_moe.", to, {"w1", "w3", "w2"});
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
