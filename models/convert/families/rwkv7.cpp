// RWKV-7, as flash-linear-attention publishes it, and ARWKV-7, which has its time mix in Qwen 2.

#include <fmt/core.h>

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/convert/config_reader.h"
#include "models/convert/tensor_plan.h"

namespace hearth::models {
namespace {

constexpr uint64_t kAnyLength = 1 << 20;  // files name the length of the training texts

/// ARWKV-7's sizes of the rows between two products, which are the same in each of its models.
constexpr uint64_t kDecayRank = 64, kRateRank = 64, kValueRank = 32, kGateRank = 128;

Result<void> plan_outer_products(TensorPlanner& p, const std::string& from, const std::string& mix,
                                 const std::array<const char*, 4>& names) {
  constexpr std::array kTargets = {"receptance", "key", "value", "output"};
  for (size_t i = 0; i < kTargets.size(); ++i) {
    HEARTH_TRY(p.matrix(fmt::format("{}{}.weight", from, names[i]),
                        fmt::format("{}{}.weight", mix, kTargets[i])));
  }
  return {};
}

/// The vectors of the time mix, and the shares of the row before in the mixed rows of `letters`.
Result<void> plan_mix_vectors(TensorPlanner& p, const std::string& from, const std::string& mix,
                              std::string_view letters) {
  const uint64_t width = p.keys().width;
  std::vector<std::string> shifts;
  for (const char letter : letters) shifts.push_back(fmt::format("{}x_{}", from, letter));
  HEARTH_TRY(p.joined(shifts, mix + "lerp_fused.weight", width, {width, 1, 1, shifts.size()}));
  for (const char* name : {"k_k", "k_a", "r_k"}) {
    HEARTH_TRY(p.flat(from + name, fmt::format("{}{}.weight", mix, name), width));
  }
  return {};
}

Result<void> plan_both(TensorPlanner& p, const std::string& from, const std::string& to) {
  HEARTH_TRY(p.vector(from + ".weight", to + ".weight"));
  return p.vector(from + ".bias", to + ".bias");
}

}  // namespace

Result<void> read_rwkv7(ConfigReader& r) {
  r.set_count("context_length", kAnyLength);
  HEARTH_TRY(r.want_flag("norm_first", true));
  HEARTH_TRY(r.want_flag("norm_bias", true));
  if (find(r.config(), "attn") != nullptr) return unsupported_key("attn", "layers of attention");
  HEARTH_ASSIGN_OR_RETURN(const uint64_t ffn, r.count_or("intermediate_size", 4 * r.keys().width));
  r.set_count("feed_forward_length", ffn);
  HEARTH_TRY(r.copy_count("head_dim", "wkv.head_size"));
  HEARTH_TRY(r.copy_count("decay_low_rank_dim", "attention.decay_lora_rank"));
  HEARTH_TRY(r.copy_count("a_low_rank_dim", "attention.iclr_lora_rank"));
  HEARTH_TRY(r.copy_count("v_low_rank_dim", "attention.value_residual_mix_lora_rank"));
  return r.copy_count("gate_low_rank_dim", "attention.gate_lora_rank");
}

Result<void> plan_rwkv7(TensorPlanner& p, uint64_t layer) {
  const std::string from = p.from(layer), to = p.to(layer);
  const std::string attn = from + "attn.", mix = to + "time_mix_";
  const uint64_t width = p.keys().width;
  const auto pair = [&](const std::string& letter, const std::string& target,
                        bool biased) -> Result<void> {
    const std::string low = attn + letter + "_lora.lora.";
    HEARTH_TRY(p.matrix(low + "0.weight", mix + target + "1.weight"));
    HEARTH_TRY(p.matrix(low + "2.weight", mix + target + "2.weight"));
    return biased ? p.flat(low + "2.bias", mix + target + "0.weight", width) : Result<void>();
  };
  if (layer == 0) HEARTH_TRY(plan_both(p, from + "pre_norm", "token_embd_norm"));
  HEARTH_TRY(plan_both(p, from + "attn_norm", to + "attn_norm"));
  HEARTH_TRY(plan_both(p, from + "ffn_norm", to + "attn_norm_2"));
  HEARTH_TRY(plan_mix_vectors(p, attn, mix, "rwkvag"));
  HEARTH_TRY(plan_outer_products(p, attn, mix, {"r_proj", "k_proj", "v_proj", "o_proj"}));
  HEARTH_TRY(pair("w", "w", true));
  HEARTH_TRY(pair("a", "a", true));
  // The first layer has no values to move. Readers of such files want tensors there, too, and do
  // not use them.
  HEARTH_TRY(pair(layer == 0 ? "a" : "v", "v", true));
  HEARTH_TRY(pair("g", "g", false));
  HEARTH_TRY(plan_both(p, attn + "g_norm", mix + "ln"));
  HEARTH_TRY(p.flat(from + "ffn.x_k", to + "channel_mix_lerp_k.weight", width));
  HEARTH_TRY(p.matrix(from + "ffn.key.weight", to + "channel_mix_key.weight"));
  return p.matrix(from + "ffn.value.weight", to + "channel_mix_value.weight");
}

// ---- ARWKV-7

Result<void> read_arwkv7(ConfigReader& r) {
  r.set_count("context_length", kAnyLength);
  HEARTH_ASSIGN_OR_RETURN(const uint64_t version, r.count("wkv_version"));
  if (version != 7) return unsupported_key("wkv_version", fmt::format("{}", version));
  HEARTH_TRY(r.want_value("head_size_divisor", 8));
  const Json* layers = find(r.config(), "wkv_layers");
  const bool all = layers == nullptr || *layers == "full" ||
                   (layers->is_array() && layers->size() == r.num_layers());
  if (!all) return unsupported_key("wkv_layers", "layers of attention");
  HEARTH_TRY(r.copy_count("intermediate_size", "feed_forward_length"));
  HEARTH_TRY(r.copy_count("head_size", "wkv.head_size"));
  HEARTH_ASSIGN_OR_RETURN(const bool gated, r.flag_or("wkv_has_gate", true));
  r.set_count("attention.decay_lora_rank", kDecayRank);
  r.set_count("attention.iclr_lora_rank", kRateRank);
  r.set_count("attention.value_residual_mix_lora_rank", kValueRank);
  r.set_count("attention.gate_lora_rank", gated ? kGateRank : 0);
  r.set_count("token_shift_count", 1);
  return {};
}

Result<void> plan_arwkv7(TensorPlanner& p, uint64_t layer) {
  const std::string from = p.from(layer), to = p.to(layer);
  const std::string mixer = from + "self_attn.time_mixer.", mix = to + "time_mix_";
  const uint64_t width = p.keys().width;
  HEARTH_ASSIGN_OR_RETURN(const auto has_gate, flag_at(p.config(), "wkv_has_gate"));
  HEARTH_ASSIGN_OR_RETURN(const auto has_norm, flag_at(p.config(), "wkv_has_group_norm"));
  const bool gated = has_gate.value_or(true), normed = has_norm.value_or(true);
  const auto pair = [&](const std::string& letter, const std::string& target, uint64_t rank,
                        bool biased) -> Result<void> {
    const std::string low = mixer + letter, out = mix + target;
    HEARTH_TRY(p.transposed(low + "1", out + "1.weight", width, rank));
    HEARTH_TRY(p.transposed(low + "2", out + "2.weight", rank, width));
    return biased ? p.flat(low + "0", out + "0.weight", width) : Result<void>();
  };
  HEARTH_TRY(p.plan_norms(from, to));
  HEARTH_TRY(plan_mix_vectors(p, mixer, mix, gated ? "rwkvag" : "rwkva"));
  HEARTH_TRY(plan_outer_products(p, mixer, mix, {"receptance", "key", "value", "output"}));
  HEARTH_TRY(pair("w", "w", kDecayRank, true));
  HEARTH_TRY(pair("a", "a", kRateRank, true));
  if (layer == 0) {  // as RWKV-7's; these are published, too, and not used
    for (const char* unused : {"v0", "v1", "v2"}) p.leave_out(mixer + unused);
    HEARTH_TRY(pair("a", "v", kRateRank, true));
  } else {
    HEARTH_TRY(pair("v", "v", kValueRank, true));
  }
  if (gated) {
    HEARTH_TRY(pair("g", "g", kGateRank, false));
  } else {
    p.leave_out(mixer + "x_g");
  }
  if (normed) HEARTH_TRY(plan_both(p, mixer + "ln_x", mix + "ln"));
  return p.plan_feed_forward(from + "mlp.", to);
}

}  // namespace hearth::models
