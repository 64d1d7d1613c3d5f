// Families whose layers have a state: gated delta nets, Mamba, Mamba-2, short convolutions.

#include <fmt/core.h>

#include <algorithm>
#include <span>
#include <utility>

#include "kernels/base/numbers.h"
#include "models/convert/config_reader.h"
#include "models/convert/families/scan_parts.h"

namespace hearth::models {

Result<void> read_scan(ConfigReader& r, const ScanKeys& names, uint64_t inner) {
  HEARTH_TRY(r.copy_count(names.taps, "ssm.conv_kernel"));
  HEARTH_TRY(r.copy_count(names.state, "ssm.state_size"));
  HEARTH_TRY(r.copy_count(names.heads, "ssm.time_step_rank"));
  if (!names.groups.empty()) HEARTH_TRY(r.copy_count(names.groups, "ssm.group_count"));
  r.set_count("ssm.inner_size", inner);
  return {};
}

Result<void> plan_conv(TensorPlanner& p, const std::string& from, const std::string& to,
                       Edit edit) {
  HEARTH_ASSIGN_OR_RETURN(const SafeTensor* conv, p.find(from, 3));
  const std::vector<uint64_t> shape = conv->shape;
  return p.reshaped(from, to, {shape[0], 1, shape[2]}, {shape[2], shape[0]}, std::move(edit));
}

namespace {

constexpr std::string_view kAttention = "full_attention", kLinear = "linear_attention";

Result<uint64_t> product_of(const ConfigReader& r, std::string_view a, std::string_view b) {
  HEARTH_ASSIGN_OR_RETURN(const uint64_t first, r.count(a));
  HEARTH_ASSIGN_OR_RETURN(const uint64_t second, r.count(b));
  return first * second;
}

/// Layers that are of no kind but these.
Result<void> want_kinds(const ConfigReader& r, std::span<const std::string_view> known,
                        const std::vector<std::string>& kinds) {
  for (const std::string& kind : kinds) {
    if (std::ranges::find(known, kind) == known.end()) return unsupported_key("layer_types", kind);
  }
  if (kinds.size() == r.keys().num_layers) return {};
  return corrupt_key("layer_types", "a name for each layer");
}

/// Steps of any length.
Result<void> refuse_step_limit(const ConfigReader& r) {
  const Json* limit = find(r.config(), "time_step_limit");
  if (limit == nullptr || !limit->is_array() || limit->size() != 2) return {};
  const Json& least = (*limit)[0];
  const Json& most = (*limit)[1];
  if (least.is_number() && least.get<double>() == 0 && !most.is_number()) return {};
  if (least.is_number() && least.get<double>() == 0 && most.get<double>() > 1e30) return {};
  return unsupported_key("time_step_limit", "a bound of the steps");
}

/// Mamba-2's vectors; `norm` is its norm of `inner` values, in groups.
Result<void> plan_mamba2_vectors(TensorPlanner& p, const std::string& from, const std::string& to,
                                 uint64_t heads, uint64_t inner, uint64_t groups) {
  HEARTH_TRY(plan_conv(p, from + "conv1d.weight", to + "ssm_conv1d.weight"));
  HEARTH_TRY(p.vector(from + "conv1d.bias", to + "ssm_conv1d.bias"));
  HEARTH_TRY(p.vector(from + "dt_bias", to + "ssm_dt.bias"));
  HEARTH_TRY(p.reshaped(from + "A_log", to + "ssm_a", {heads}, {1, heads}, minus_exp()));
  HEARTH_TRY(p.reshaped(from + "D", to + "ssm_d", {heads}, {1, heads}));
  if (!p.has(from + "norm.weight")) return {};
  if (groups == 0) return corrupt_key("n_groups", "at least 1");
  return p.reshaped(from + "norm.weight", to + "ssm_norm.weight", {inner},
                    {inner / groups, groups});
}

Result<void> plan_mamba2_mixer(TensorPlanner& p, const std::string& from, const std::string& to,
                               uint64_t heads, uint64_t inner, uint64_t groups) {
  HEARTH_TRY(p.product(from + "in_proj", to + "ssm_in"));
  HEARTH_TRY(plan_mamba2_vectors(p, from, to, heads, inner, groups));
  return p.product(from + "out_proj", to + "ssm_out");
}

Result<void> plan_mamba_mixer(TensorPlanner& p, const std::string& from, const std::string& to) {
  HEARTH_TRY(p.product(from + "in_proj", to + "ssm_in"));
  HEARTH_TRY(plan_conv(p, from + "conv1d.weight", to + "ssm_conv1d.weight"));
  HEARTH_TRY(p.vector(from + "conv1d.bias", to + "ssm_conv1d.bias"));
  HEARTH_TRY(p.product(from + "x_proj", to + "ssm_x"));
  HEARTH_TRY(p.product(from + "dt_proj", to + "ssm_dt"));
  HEARTH_ASSIGN_OR_RETURN(const SafeTensor* rates, p.find(from + "A_log", 2));
  const std::vector<uint64_t> shape = rates->shape;
  HEARTH_TRY(p.reshaped(from + "A_log", to + "ssm_a", shape, {shape[1], shape[0]}, minus_exp()));
  HEARTH_TRY(p.vector(from + "D", to + "ssm_d"));
  return p.product(from + "out_proj", to + "ssm_out");
}

}  // namespace

// ---- Qwen3-Next and Qwen 3.5. Heads of values are stored in groups that share a head of keys. In
// Qwen 3.5's new file, the heads of keys take turns instead.

Result<void> read_qwen35(ConfigReader& r) {
  HEARTH_TRY(r.read_kinds());
  uint64_t interval = 1;
  const std::vector<std::string>& kinds = r.keys().kinds;
  while (interval <= kinds.size() && kinds[interval - 1] == kLinear) ++interval;
  for (uint64_t i = 0; i < kinds.size(); ++i) {
    const bool attends = i % interval == interval - 1;
    if (kinds[i] == (attends ? kAttention : kLinear)) continue;
    return unsupported_key("layer_types", "attention in other than every n-th layer");
  }
  if (kinds.empty()) {
    HEARTH_ASSIGN_OR_RETURN(interval, r.count_or("full_attention_interval", 4));
  }
  r.set_count("full_attention_interval", interval);
  HEARTH_ASSIGN_OR_RETURN(const uint64_t inner,
                          product_of(r, "linear_num_value_heads", "linear_value_head_dim"));
  HEARTH_TRY(read_scan(r,
                       {"linear_conv_kernel_dim", "linear_key_head_dim", "linear_num_value_heads",
                        "linear_num_key_heads"},
                       inner));
  const Json* rope = r.rope_object(kAttention);
  const Json* sections = rope == nullptr ? nullptr : find(*rope, "mrope_section");
  if (sections == nullptr || r.family().architecture == "qwen3next") return {};
  std::vector<int32_t> counts;
  for (const Json& count : *sections) {
    if (!count.is_number_unsigned() || count.get<uint64_t>() > r.head_dim()) {
      return corrupt_key("mrope_section", "counts of pairs");
    }
    counts.push_back(count.get<int32_t>());
  }
  counts.resize(4);
  r.set("rope.dimension_sections", std::move(counts));
  return {};
}

Result<void> read_qwen35_moe(ConfigReader& r) {
  HEARTH_TRY(read_qwen35(r));
  HEARTH_TRY(r.read_routing({"num_experts", "num_experts_per_tok", "moe_intermediate_size", ""}));
  HEARTH_TRY(r.want_value("decoder_sparse_step", 1));
  return r.copy_count("shared_expert_intermediate_size", "expert_shared_feed_forward_length");
}

namespace {

struct DeltaSizes {
  uint64_t k_heads = 0, v_heads = 0, k_dim = 0, v_dim = 0;
  uint64_t each() const { return v_heads / k_heads; }
  uint64_t keys() const { return k_heads * k_dim; }
  uint64_t values() const { return v_heads * v_dim; }
  /// The published head of values at place `head` of the new file.
  uint64_t source(uint64_t head) const { return head % k_heads * each() + head / k_heads; }
};

Result<DeltaSizes> delta_sizes(const TensorPlanner& p) {
  DeltaSizes s;
  HEARTH_ASSIGN_OR_RETURN(s.k_heads, want_count(p.config(), "linear_num_key_heads"));
  HEARTH_ASSIGN_OR_RETURN(s.v_heads, want_count(p.config(), "linear_num_value_heads"));
  HEARTH_ASSIGN_OR_RETURN(s.k_dim, want_count(p.config(), "linear_key_head_dim"));
  HEARTH_ASSIGN_OR_RETURN(s.v_dim, want_count(p.config(), "linear_value_head_dim"));
  if (s.k_heads == 0 || s.v_heads % s.k_heads != 0) {
    return corrupt_key("linear_num_value_heads", "a multiple of linear_num_key_heads");
  }
  if (s.k_dim == 0 || s.v_dim == 0) return corrupt_key("linear_key_head_dim", "at least 1");
  return s;
}

Result<void> plan_qwen35_rest(TensorPlanner& p, const std::string& from, const std::string& to) {
  HEARTH_TRY(p.plan_norms(from, to));
  if (p.has(from + "self_attn.q_proj.weight")) {
    HEARTH_TRY(p.plan_attention(from + "self_attn.", to));
  }
  const std::string mlp = from + "mlp.";
  if (!p.has(mlp + "gate.weight")) return p.plan_feed_forward(mlp, to);
  HEARTH_TRY(p.matrix(mlp + "gate.weight", to + "ffn_gate_inp.weight"));
  HEARTH_TRY(p.plan_experts(mlp, to));
  return p.plan_gated_expert(mlp, to);
}

}  // namespace

Result<void> plan_qwen35(TensorPlanner& p, uint64_t layer) {
  const std::string from = p.from(layer), to = p.to(layer), net = from + "linear_attn.";
  const uint64_t width = p.keys().width;
  HEARTH_TRY(plan_qwen35_rest(p, from, to));
  if (!p.has(net + "in_proj_qkv.weight")) return {};
  HEARTH_ASSIGN_OR_RETURN(const DeltaSizes s, delta_sizes(p));
  const auto value_row = [s](uint64_t row) {
    return s.source(row / s.v_dim) * s.v_dim + row % s.v_dim;
  };
  const auto channel = [s, value_row](uint64_t row) {
    const uint64_t first = 2 * s.keys();
    return row < first ? row : first + value_row(row - first);
  };
  const auto head = [s](uint64_t row) { return s.source(row); };
  const uint64_t channels = 2 * s.keys() + s.values();
  HEARTH_TRY(p.taken(net + "in_proj_qkv.weight", to + "attn_qkv.weight", {channels, width},
                     {width, channels}, rows(width, channel)));
  HEARTH_TRY(p.taken(net + "in_proj_z.weight", to + "attn_gate.weight", {s.values(), width},
                     {width, s.values()}, rows(width, value_row)));
  HEARTH_TRY(p.taken(net + "in_proj_b.weight", to + "ssm_beta.weight", {s.v_heads, width},
                     {width, s.v_heads}, rows(width, head)));
  HEARTH_TRY(p.taken(net + "in_proj_a.weight", to + "ssm_alpha.weight", {s.v_heads, width},
                     {width, s.v_heads}, rows(width, head)));
  HEARTH_ASSIGN_OR_RETURN(const SafeTensor* conv, p.find(net + "conv1d.weight", 3));
  const uint64_t taps = conv->shape[2];
  HEARTH_TRY(p.reshaped(net + "conv1d.weight", to + "ssm_conv1d.weight", {channels, 1, taps},
                        {taps, channels}, rows(taps, channel)));
  HEARTH_TRY(
      p.reshaped(net + "dt_bias", to + "ssm_dt.bias", {s.v_heads}, {s.v_heads}, rows(1, head)));
  Edit rates = minus_exp();
  rates.source = head;
  HEARTH_TRY(p.reshaped(net + "A_log", to + "ssm_a", {s.v_heads}, {s.v_heads}, std::move(rates)));
  HEARTH_TRY(p.vector(net + "norm.weight", to + "ssm_norm.weight"));
  return p.taken(net + "out_proj.weight", to + "ssm_out.weight", {width, s.values()},
                 {s.values(), width},
                 {[s, value_row](uint64_t i) {
                    const uint64_t cols = s.values();
                    return i / cols * cols + value_row(i % cols);
                  },
                  nullptr,
                  {}});
}

// Published: for each head of keys its q, k, v and z one after the other.
Result<void> plan_qwen3_next(TensorPlanner& p, uint64_t layer) {
  const std::string from = p.from(layer), to = p.to(layer), net = from + "linear_attn.";
  const uint64_t width = p.keys().width;
  HEARTH_TRY(plan_qwen35_rest(p, from, to));
  if (!p.has(net + "in_proj_qkvz.weight")) return {};
  HEARTH_ASSIGN_OR_RETURN(const DeltaSizes s, delta_sizes(p));
  const uint64_t each = s.each() * s.v_dim, stride = 2 * s.k_dim + 2 * each;
  const uint64_t channels = 2 * s.keys() + s.values();
  const std::vector<uint64_t> shape{channels + s.values(), width};
  const auto channel = [=](uint64_t row) {
    if (row < s.keys()) return row / s.k_dim * stride + row % s.k_dim;
    row -= s.keys();
    if (row < s.keys()) return row / s.k_dim * stride + s.k_dim + row % s.k_dim;
    row -= s.keys();
    return row / each * stride + 2 * s.k_dim + row % each;
  };
  const auto gate = [=](uint64_t row) {
    return row / each * stride + 2 * s.k_dim + each + row % each;
  };
  HEARTH_TRY(p.taken(net + "in_proj_qkvz.weight", to + "attn_qkv.weight", shape, {width, channels},
                     rows(width, channel)));
  HEARTH_TRY(p.taken(net + "in_proj_qkvz.weight", to + "attn_gate.weight", shape,
                     {width, s.values()}, rows(width, gate)));
  HEARTH_TRY(p.matrix(net + "in_proj_ba.weight", to + "ssm_ba.weight"));
  HEARTH_TRY(plan_conv(p, net + "conv1d.weight", to + "ssm_conv1d.weight"));
  HEARTH_TRY(p.vector(net + "dt_bias", to + "ssm_dt.bias"));
  HEARTH_TRY(p.vector(net + "A_log", to + "ssm_a", minus_exp()));
  HEARTH_TRY(p.vector(net + "norm.weight", to + "ssm_norm.weight"));
  return p.matrix(net + "out_proj.weight", to + "ssm_out.weight");
}

// ---- LFM2

Result<void> read_lfm2(ConfigReader& r) {
  HEARTH_TRY(r.want_flag("conv_bias", false));
  HEARTH_TRY(r.read_kinds());
  constexpr std::string_view kKinds[] = {"conv", kAttention};
  HEARTH_TRY(want_kinds(r, kKinds, r.keys().kinds));
  r.set_kv_heads(kAttention);
  HEARTH_TRY(r.copy_count("conv_L_cache", "shortconv.l_cache"));
  // As the published code: two thirds, then a multiple of a number.
  HEARTH_ASSIGN_OR_RETURN(const bool adjusted, r.flag_or("block_auto_adjust_ff_dim", false));
  if (!adjusted || r.family().model_type != "lfm2") return {};
  HEARTH_ASSIGN_OR_RETURN(const uint64_t width, r.count("intermediate_size"));
  HEARTH_ASSIGN_OR_RETURN(const double factor, r.number_or("block_ffn_dim_multiplier", 1));
  HEARTH_ASSIGN_OR_RETURN(const uint64_t multiple, r.count_or("block_multiple_of", 256));
  if (multiple == 0 || !(factor > 0 && factor < 100)) {
    return corrupt_key("block_multiple_of, block_ffn_dim_multiplier", "above 0");
  }
  const auto scaled = whole(factor * as_double(2 * width / 3));
  r.set_count("feed_forward_length", (scaled + multiple - 1) / multiple * multiple);
  return {};
}

Result<void> read_lfm2_moe(ConfigReader& r) {
  HEARTH_TRY(read_lfm2(r));
  HEARTH_TRY(r.read_routing({"num_experts", "num_experts_per_tok", "moe_intermediate_size", ""}));
  HEARTH_TRY(r.want_flag("use_expert_bias", true));
  r.set_count("expert_gating_func", kSigmoid);
  HEARTH_ASSIGN_OR_RETURN(const uint64_t dense, r.count_or("num_dense_layers", 0));
  r.set_count("leading_dense_block_count", dense);
  return {};
}

Result<void> plan_lfm2(TensorPlanner& p, uint64_t layer) {
  const std::string from = p.from(layer), to = p.to(layer), ffn = from + "feed_forward.";
  HEARTH_TRY(p.vector(from + "operator_norm.weight", to + "attn_norm.weight"));
  HEARTH_TRY(p.vector(from + "ffn_norm.weight", to + "ffn_norm.weight"));
  if (p.has(from + "conv.conv.weight")) {
    HEARTH_TRY(p.product(from + "conv.in_proj", to + "shortconv.in_proj"));
    HEARTH_TRY(plan_conv(p, from + "conv.conv.weight", to + "shortconv.conv.weight"));
    HEARTH_TRY(p.product(from + "conv.out_proj", to + "shortconv.out_proj"));
  } else {
    const std::string attention = from + "self_attn.";
    for (const auto& [name, target] :
         {std::pair{"q_proj", "attn_q"}, std::pair{"k_proj", "attn_k"},
          std::pair{"v_proj", "attn_v"}, std::pair{"out_proj", "attn_output"}}) {
      HEARTH_TRY(p.product(attention + name, to + target));
    }
    HEARTH_TRY(p.vector(attention + "q_layernorm.weight", to + "attn_q_norm.weight"));
    HEARTH_TRY(p.vector(attention + "k_layernorm.weight", to + "attn_k_norm.weight"));
  }
  if (!p.has(ffn + "gate.weight")) return p.plan_gated(ffn, to, "", {"w1", "w3", "w2"});
  HEARTH_TRY(p.matrix(ffn + "gate.weight", to + "ffn_gate_inp.weight"));
  HEARTH_TRY(p.vector(ffn + "expert_bias", to + "exp_probs_b.bias"));
  return p.plan_experts(ffn, to, {"w1", "w3", "w2"});
}

// ---- Falcon-H1: attention and Mamba-2 next to each other. Its multipliers go into the weights.

Result<void> read_falcon_h1(ConfigReader& r) {
  HEARTH_TRY(refuse_step_limit(r));
  for (const char* key : {"attention_bias", "mamba_proj_bias", "mlp_bias", "projectors_bias"}) {
    HEARTH_TRY(r.want_flag(key, false));
  }
  HEARTH_ASSIGN_OR_RETURN(const bool normed, r.flag_or("mamba_rms_norm", false));
  if (normed) HEARTH_TRY(r.want_flag("mamba_norm_before_gate", false));
  HEARTH_ASSIGN_OR_RETURN(const uint64_t inner, r.count("mamba_d_ssm"));
  HEARTH_ASSIGN_OR_RETURN(r.keys().embedding_factor, r.number_or("embedding_multiplier", 1));
  HEARTH_ASSIGN_OR_RETURN(r.keys().head_factor, r.number_or("lm_head_multiplier", 1));
  if (r.keys().tied) HEARTH_TRY(r.want_value("lm_head_multiplier", r.keys().embedding_factor));
  return read_scan(r, {"mamba_d_conv", "mamba_d_state", "mamba_n_heads", "mamba_n_groups"}, inner);
}

namespace {

Result<double> multiplier(const TensorPlanner& p, std::string_view key) {
  HEARTH_ASSIGN_OR_RETURN(const auto met, number_at(p.config(), key));
  return met.value_or(1);
}

/// The numbers of a list, or ones.
Result<std::vector<double>> multipliers(const TensorPlanner& p, std::string_view key,
                                        size_t count) {
  const Json* list = find(p.config(), key);
  if (list == nullptr) return std::vector<double>(count, 1.0);
  std::vector<double> out;
  for (const Json& value : *list) {
    if (!value.is_number()) return corrupt_key(key, "numbers");
    out.push_back(value.get<double>());
  }
  if (!list->is_array() || out.size() != count) {
    return corrupt_key(key, fmt::format("{} numbers", count));
  }
  return out;
}

}  // namespace

Result<void> plan_falcon_h1(TensorPlanner& p, uint64_t layer) {
  const std::string from = p.from(layer), to = p.to(layer);
  HEARTH_TRY(p.vector(from + "input_layernorm.weight", to + "attn_norm.weight"));
  HEARTH_TRY(p.vector(from + "pre_ff_layernorm.weight", to + "ffn_norm.weight"));
  HEARTH_ASSIGN_OR_RETURN(const double in, multiplier(p, "attention_in_multiplier"));
  HEARTH_ASSIGN_OR_RETURN(const double keys, multiplier(p, "key_multiplier"));
  HEARTH_ASSIGN_OR_RETURN(const double out, multiplier(p, "attention_out_multiplier"));
  HEARTH_ASSIGN_OR_RETURN(const double scan_in, multiplier(p, "ssm_in_multiplier"));
  HEARTH_ASSIGN_OR_RETURN(const double scan_out, multiplier(p, "ssm_out_multiplier"));
  HEARTH_ASSIGN_OR_RETURN(const std::vector<double> ffn, multipliers(p, "mlp_multipliers", 2));
  HEARTH_ASSIGN_OR_RETURN(const std::vector<double> parts, multipliers(p, "ssm_multipliers", 5));
  const auto scaled = [&](const char* name, const char* target, double factor) {
    return p.matrix(from + name + ".weight", to + target + ".weight", times(factor));
  };
  HEARTH_TRY(scaled("self_attn.q_proj", "attn_q", in));
  HEARTH_TRY(scaled("self_attn.k_proj", "attn_k", in * keys));
  HEARTH_TRY(scaled("self_attn.v_proj", "attn_v", in));
  HEARTH_TRY(scaled("self_attn.o_proj", "attn_output", out));
  HEARTH_TRY(scaled("feed_forward.gate_proj", "ffn_gate", ffn[0]));
  HEARTH_TRY(scaled("feed_forward.up_proj", "ffn_up", 1));
  HEARTH_TRY(scaled("feed_forward.down_proj", "ffn_down", ffn[1]));
  HEARTH_TRY(scaled("mamba.out_proj", "ssm_out", scan_out));
  HEARTH_ASSIGN_OR_RETURN(const uint64_t inner, want_count(p.config(), "mamba_d_ssm"));
  HEARTH_ASSIGN_OR_RETURN(const uint64_t heads, want_count(p.config(), "mamba_n_heads"));
  HEARTH_ASSIGN_OR_RETURN(const uint64_t groups, want_count(p.config(), "mamba_n_groups"));
  HEARTH_ASSIGN_OR_RETURN(const uint64_t state, want_count(p.config(), "mamba_d_state"));
  HEARTH_TRY(plan_mamba2_vectors(p, from + "mamba.", to, heads, inner, groups));
  // Rows of gate, x, B, C and the steps, each with its own factor.
  const uint64_t sizes[] = {inner, inner, groups * state, groups * state, heads};
  const std::string joined = from + "mamba.in_proj.weight";
  HEARTH_ASSIGN_OR_RETURN(const SafeTensor* in_proj, p.find(joined, 2));
  if (2 * inner + 2 * groups * state + heads != in_proj->shape[0]) {
    return corrupt_key("mamba_d_ssm", fmt::format("a width that fits {}", joined));
  }
  std::vector<double> row_factors;
  for (size_t i = 0; i < std::size(sizes); ++i) {
    row_factors.insert(row_factors.end(), sizes[i], scan_in * parts[i]);
  }
  return p.scaled_rows(joined, to + "ssm_in.weight", std::move(row_factors));
}

// ---- Granite 4

Result<void> read_granite_hybrid(ConfigReader& r) {
  HEARTH_TRY(refuse_step_limit(r));
  HEARTH_TRY(r.want_flag("mamba_proj_bias", false));
  HEARTH_TRY(r.read_kinds());
  for (std::string& kind : r.keys().kinds) {
    if (kind == "mamba") kind = kLinear;
    if (kind == "attention") kind = kAttention;
  }
  constexpr std::string_view kKinds[] = {kLinear, kAttention};
  HEARTH_TRY(want_kinds(r, kKinds, r.keys().kinds));
  r.set_kv_heads(kAttention);
  HEARTH_ASSIGN_OR_RETURN(const auto positions, text_at(r.config(), "position_embedding_type"));
  r.set("rope.scaling.finetuned", positions == "rope");
  HEARTH_ASSIGN_OR_RETURN(const uint64_t inner, product_of(r, "mamba_n_heads", "mamba_d_head"));
  HEARTH_TRY(
      read_scan(r, {"mamba_d_conv", "mamba_d_state", "mamba_n_heads", "mamba_n_groups"}, inner));
  HEARTH_ASSIGN_OR_RETURN(const uint64_t experts, r.count_or("num_local_experts", 0));
  if (experts == 0) return r.copy_count("shared_intermediate_size", "feed_forward_length");
  HEARTH_TRY(r.read_routing({"num_local_experts", "num_experts_per_tok", "intermediate_size", ""}));
  r.drop("expert_feed_forward_length");
  return r.copy_count("shared_intermediate_size", "expert_shared_feed_forward_length");
}

Result<void> plan_granite_hybrid(TensorPlanner& p, uint64_t layer) {
  const std::string from = p.from(layer), to = p.to(layer), mamba = from + "mamba.";
  HEARTH_TRY(p.plan_norms(from, to));
  if (p.has(mamba + "in_proj.weight")) {
    HEARTH_ASSIGN_OR_RETURN(const uint64_t heads, want_count(p.config(), "mamba_n_heads"));
    HEARTH_ASSIGN_OR_RETURN(const uint64_t dim, want_count(p.config(), "mamba_d_head"));
    HEARTH_ASSIGN_OR_RETURN(const uint64_t groups, want_count(p.config(), "mamba_n_groups"));
    HEARTH_TRY(plan_mamba2_mixer(p, mamba, to, heads, heads * dim, groups));
  } else {
    HEARTH_TRY(p.plan_attention(from + "self_attn.", to));
  }
  if (p.keys().num_experts > 0) return p.plan_joined_experts(from, to);
  return p.plan_halves(from + "shared_mlp.", to, "");
}

// ---- Nemotron-H: each layer is attention, Mamba-2 or a feed-forward. Older files name the layers
// by the letters of a text.

Result<void> read_nemotron_h(ConfigReader& r) {
  HEARTH_TRY(refuse_step_limit(r));
  for (const char* key : {"attention_bias", "mamba_proj_bias", "mlp_bias", "use_bias"}) {
    HEARTH_TRY(r.want_flag(key, false));
  }
  std::vector<std::string>& kinds = r.keys().kinds;
  HEARTH_ASSIGN_OR_RETURN(kinds, r.names("layers_block_type"));
  HEARTH_ASSIGN_OR_RETURN(const auto letters, text_at(r.config(), "hybrid_override_pattern"));
  if (kinds.empty() && letters) {
    for (const char letter : *letters) {
      kinds.emplace_back(letter == 'M'   ? kLinear
                         : letter == '*' ? kAttention
                         : letter == '-' ? "mlp"
                                         : "moe");
    }
  }
  for (std::string& kind : kinds) {
    if (kind == "mamba") kind = kLinear;
    if (kind == "attention") kind = kAttention;
  }
  constexpr std::string_view kKinds[] = {kLinear, kAttention, "mlp", "moe"};
  HEARTH_TRY(want_kinds(r, kKinds, kinds));
  r.set_kv_heads(kAttention);
  const bool experts = std::ranges::find(kinds, "moe") != kinds.end();
  HEARTH_ASSIGN_OR_RETURN(const uint64_t width, r.count("intermediate_size"));
  if (width > (1u << 24)) return corrupt_key("intermediate_size", "at most 16777216");
  std::vector<int32_t> ffn;
  for (const std::string& kind : kinds) {
    ffn.push_back(kind == "mlp" || kind == "moe" ? narrow<int32_t>(width) : 0);
  }
  HEARTH_ASSIGN_OR_RETURN(const uint64_t inner, product_of(r, "mamba_num_heads", "mamba_head_dim"));
  HEARTH_TRY(read_scan(r, {"conv_kernel", "ssm_state_size", "mamba_num_heads", "n_groups"}, inner));
  r.set("feed_forward_length", std::move(ffn));
  if (!experts) return {};
  r.set_architecture("nemotron_h_moe");
  if (find(r.config(), "moe_latent_size") != nullptr) {
    return unsupported_key("moe_latent_size", "experts of projected rows");
  }
  HEARTH_TRY(r.read_routing({}));
  HEARTH_TRY(r.want_value("n_group", 1));
  HEARTH_TRY(r.want_value("topk_group", 1));
  r.set_count("expert_gating_func", kSigmoid);
  return r.copy_count("moe_shared_expert_intermediate_size", "expert_shared_feed_forward_length");
}

Result<void> plan_nemotron_h(TensorPlanner& p, uint64_t layer) {
  const std::string from = p.from(layer), to = p.to(layer), mixer = from + "mixer.";
  HEARTH_TRY(p.vector(from + "norm.weight", to + "attn_norm.weight"));
  const std::string& kind = p.keys().kinds[layer];
  if (kind == "mlp") return p.plan_gated(mixer, to, "", {"", "up_proj", "down_proj"});
  if (kind == kAttention) return p.plan_attention(mixer, to);
  if (kind == "moe") {
    constexpr ExpertNames kUngated = {"", "up_proj", "down_proj"};
    HEARTH_TRY(p.matrix(mixer + "gate.weight", to + "ffn_gate_inp.weight"));
    HEARTH_TRY(p.vector(mixer + "gate.e_score_correction_bias", to + "exp_probs_b.bias"));
    HEARTH_TRY(p.plan_experts(mixer, to, kUngated));
    return p.plan_gated(mixer + "shared_experts.", to, "_shexp", kUngated);
  }
  HEARTH_ASSIGN_OR_RETURN(const uint64_t heads, want_count(p.config(), "mamba_num_heads"));
  HEARTH_ASSIGN_OR_RETURN(const uint64_t dim, want_count(p.config(), "mamba_head_dim"));
  HEARTH_ASSIGN_OR_RETURN(const uint64_t groups, want_count(p.config(), "n_groups"));
  return plan_mamba2_mixer(p, mixer, to, heads, heads * dim, groups);
}

// ---- Jamba

Result<void> read_jamba(ConfigReader& r) {
  HEARTH_TRY(r.want_flag("mamba_proj_bias", false));
  HEARTH_ASSIGN_OR_RETURN(const uint64_t period, r.count_or("attn_layer_period", 8));
  HEARTH_ASSIGN_OR_RETURN(const uint64_t offset, r.count_or("attn_layer_offset", 4));
  if (period == 0) return corrupt_key("attn_layer_period", "at least 1");
  for (uint64_t i = 0; i < r.keys().num_layers; ++i) {
    r.keys().kinds.emplace_back(i % period == offset ? kAttention : kLinear);
  }
  r.set_kv_heads(kAttention);
  HEARTH_ASSIGN_OR_RETURN(const uint64_t expand, r.count_or("mamba_expand", 2));
  HEARTH_TRY(read_scan(r, {"mamba_d_conv", "mamba_d_state", "mamba_dt_rank", ""},
                       expand * r.keys().width));
  HEARTH_ASSIGN_OR_RETURN(const uint64_t experts, r.count_or("num_experts", 1));
  if (experts <= 1) return {};
  HEARTH_TRY(r.read_routing({"num_experts", "num_experts_per_tok", "intermediate_size", ""}));
  r.drop("expert_feed_forward_length");
  return {};
}

Result<void> plan_jamba(TensorPlanner& p, uint64_t layer) {
  const std::string from = p.from(layer), to = p.to(layer), ffn = from + "feed_forward.";
  HEARTH_TRY(p.vector(from + "input_layernorm.weight", to + "attn_norm.weight"));
  HEARTH_TRY(p.vector(from + "pre_ff_layernorm.weight", to + "ffn_norm.weight"));
  const std::string mamba = from + "mamba.";
  if (p.has(mamba + "in_proj.weight")) {
    HEARTH_TRY(plan_mamba_mixer(p, mamba, to));
    for (const char* part : {"dt", "b", "c"}) {
      HEARTH_TRY(p.vector(fmt::format("{}{}_layernorm.weight", mamba, part),
                          fmt::format("{}ssm_{}_norm.weight", to, part)));
    }
  } else {
    HEARTH_TRY(p.plan_attention(from + "self_attn.", to));
  }
  if (!p.has(ffn + "router.weight")) return p.plan_feed_forward(ffn, to);
  HEARTH_TRY(p.matrix(ffn + "router.weight", to + "ffn_gate_inp.weight"));
  return p.plan_experts(ffn, to);
}

// ---- Mamba and Mamba-2

Result<void> read_mamba(ConfigReader& r) {
  HEARTH_TRY(r.want_flag("use_bias", false));
  HEARTH_TRY(r.want_flag("use_conv_bias", true));
  HEARTH_ASSIGN_OR_RETURN(const uint64_t expand, r.count_or("expand", 2));
  HEARTH_ASSIGN_OR_RETURN(const uint64_t inner,
                          r.count_or("intermediate_size", expand * r.keys().width));
  return read_scan(r, {"conv_kernel", "state_size", "time_step_rank", ""}, inner);
}

Result<void> read_mamba2(ConfigReader& r) {
  HEARTH_TRY(refuse_step_limit(r));
  HEARTH_TRY(r.want_flag("use_bias", false));
  HEARTH_TRY(r.want_flag("use_conv_bias", true));
  HEARTH_ASSIGN_OR_RETURN(const uint64_t inner, product_of(r, "num_heads", "head_dim"));
  return read_scan(r, {"conv_kernel", "state_size", "num_heads", "n_groups"}, inner);
}

Result<void> plan_mamba(TensorPlanner& p, uint64_t layer) {
  const std::string from = p.from(layer), to = p.to(layer);
  HEARTH_TRY(p.vector(from + "norm.weight", to + "attn_norm.weight"));
  return plan_mamba_mixer(p, from + "mixer.", to);
}

Result<void> plan_mamba2(TensorPlanner& p, uint64_t layer) {
  const std::string from = p.from(layer), to = p.to(layer);
  HEARTH_TRY(p.vector(from + "norm.weight", to + "attn_norm.weight"));
  HEARTH_ASSIGN_OR_RETURN(const uint64_t heads, want_count(p.config(), "num_heads"));
  HEARTH_ASSIGN_OR_RETURN(const uint64_t dim, want_count(p.config(), "head_dim"));
  HEARTH_ASSIGN_OR_RETURN(const uint64_t groups, want_count(p.config(), "n_groups"));
  return plan_mamba2_mixer(p, from + "mixer.", to, heads, heads * dim, groups);
}

}  // namespace hearth::models
