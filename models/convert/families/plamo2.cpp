// PLaMo 2, as its authors publish it: norms are stored without what the code adds to them.

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "kernels/base/numbers.h"
#include "models/convert/config_reader.h"
#include "models/convert/families/scan_parts.h"

namespace hearth::models {
namespace {

/// Norms after a branch are stored without these, which the published code adds.
constexpr double kAfterMixer = 1.0 / 5, kAfterFeedForward = 0.08944271909999159;  // 5^-1.5

Edit plus(double number) {
  return {nullptr, [number](double x) { return number + x; }, {}};
}

}  // namespace

Result<void> read_plamo2(ConfigReader& r) {
  FamilyKeys& k = r.keys();
  HEARTH_TRY(r.want_flag("mamba_enabled", true));
  HEARTH_ASSIGN_OR_RETURN(const uint64_t step, r.count_or("mamba_step", 2));
  if (step == 0) return corrupt_key("mamba_step", "at least 1");
  HEARTH_ASSIGN_OR_RETURN(k.head_dim, r.count("hidden_size_per_head"));
  r.set_count("attention.key_length", k.head_dim);
  r.set_count("attention.value_length", k.head_dim);
  r.set_count("rope.dimension_count", k.head_dim);
  std::vector<int32_t> heads, kv_heads;
  for (uint64_t i = 0; i < k.num_layers; ++i) {
    const bool attends = k.num_layers <= step / 2 ? i + 1 == k.num_layers : i % step == step / 2;
    heads.push_back(attends ? narrow<int32_t>(k.num_heads) : 0);
    kv_heads.push_back(attends ? narrow<int32_t>(k.num_kv_heads) : 0);
  }
  r.set("attention.head_count", std::move(heads));
  r.set("attention.head_count_kv", std::move(kv_heads));
  // The new file has no windows, so its texts are as long as the window at most.
  HEARTH_ASSIGN_OR_RETURN(const uint64_t longest, r.count("max_position_embeddings"));
  HEARTH_ASSIGN_OR_RETURN(const uint64_t window, r.count_or("attention_window_size", longest));
  r.set_count("context_length", std::min(longest, window));
  HEARTH_ASSIGN_OR_RETURN(const uint64_t mamba_heads, r.count("mamba_num_heads"));
  HEARTH_TRY(read_scan(r, {"mamba_d_conv", "mamba_d_state", "mamba_num_heads", ""},
                       mamba_heads * k.head_dim));
  r.set_count("ssm.group_count", 0);
  return {};
}

Result<void> plan_plamo2(TensorPlanner& p, uint64_t layer) {
  const std::string from = fmt::format("model.layers.layers.{}.", layer), to = p.to(layer);
  const std::string mixer = from + "mixer.";
  HEARTH_TRY(p.vector(from + "pre_mixer_norm.weight", to + "attn_norm.weight", add_one()));
  HEARTH_TRY(
      p.vector(from + "post_mixer_norm.weight", to + "post_attention_norm", plus(kAfterMixer)));
  HEARTH_TRY(p.vector(from + "pre_mlp_norm.weight", to + "ffn_norm.weight", add_one()));
  HEARTH_TRY(
      p.vector(from + "post_mlp_norm.weight", to + "post_ffw_norm", plus(kAfterFeedForward)));
  HEARTH_TRY(p.plan_feed_forward(from + "mlp.", to));
  if (p.has(mixer + "qkv_proj.weight")) {
    HEARTH_TRY(p.matrix(mixer + "qkv_proj.weight", to + "attn_qkv.weight"));
    for (const auto& [letter, heads] :
         {std::pair{"q", p.keys().num_heads}, std::pair{"k", p.keys().num_kv_heads}}) {
      HEARTH_TRY(p.reshaped(fmt::format("{}{}_weight", mixer, letter),
                            fmt::format("{}attn_{}_norm.weight", to, letter),
                            {heads, p.keys().head_dim}, {p.keys().head_dim, heads}));
    }
    return p.matrix(mixer + "o_proj.weight", to + "attn_output.weight");
  }
  HEARTH_TRY(p.matrix(mixer + "in_proj.weight", to + "ssm_in.weight"));
  HEARTH_TRY(plan_conv(p, mixer + "conv1d.weight", to + "ssm_conv1d.weight"));
  HEARTH_TRY(p.matrix(mixer + "bcdt_proj.weight", to + "ssm_x.weight"));
  HEARTH_TRY(p.matrix(mixer + "dt_proj.weight", to + "ssm_dt.weight"));
  HEARTH_TRY(p.vector(mixer + "dt_bias", to + "ssm_dt.bias"));
  HEARTH_TRY(p.vector(mixer + "A_log", to + "ssm_a", minus_exp()));
  HEARTH_TRY(p.vector(mixer + "D", to + "ssm_d"));
  for (const auto& [name, target] :
       {std::pair{"dt", "dt"}, std::pair{"B", "b"}, std::pair{"C", "c"}}) {
    HEARTH_TRY(p.vector(fmt::format("{}{}_norm_weight", mixer, name),
                        fmt::format("{}ssm_{}_norm", to, target)));
  }
  return p.matrix(mixer + "out_proj.weight", to + "ssm_out.weight");
}

}  // namespace hearth::models
