// RWKV-7, as flash-linear-attention publishes it.

#include <fmt/core.h>

#include <utility>

#include "models/convert/config_reader.h"
#include "models/convert/tensor_plan.h"

namespace hearth::models {

Result<void> read_rwkv7(ConfigReader& r) {
  constexpr uint64_t kAnyLength = 1 << 20;  // its files name the length of the training texts
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
  const auto norm = [&](const std::string& name, const std::string& target) -> Result<void> {
    HEARTH_TRY(p.vector(name + ".weight", target + ".weight"));
    return p.vector(name + ".bias", target + ".bias");
  };
  const auto pair = [&](const std::string& letter, const std::string& target,
                        bool biased) -> Result<void> {
    const std::string low = attn + letter + "_lora.lora.";
    HEARTH_TRY(p.matrix(low + "0.weight", mix + target + "1.weight"));
    HEARTH_TRY(p.matrix(low + "2.weight", mix + target + "2.weight"));
    return biased ? p.flat(low + "2.bias", mix + target + "0.weight", width) : Result<void>();
  };
  if (layer == 0) HEARTH_TRY(norm(from + "pre_norm", "token_embd_norm"));
  HEARTH_TRY(norm(from + "attn_norm", to + "attn_norm"));
  HEARTH_TRY(norm(from + "ffn_norm", to + "attn_norm_2"));
  std::vector<std::string> shifts;
  for (const char letter : std::string_view("rwkvag")) {
    shifts.push_back(fmt::format("{}x_{}", attn, letter));
  }
  HEARTH_TRY(p.joined(shifts, mix + "lerp_fused.weight", width, {width, 1, 1, shifts.size()}));
  for (const auto& [name, target] : {std::pair{"r_proj", "receptance"}, std::pair{"k_proj", "key"},
                                     std::pair{"v_proj", "value"}, std::pair{"o_proj", "output"}}) {
    HEARTH_TRY(
        p.matrix(fmt::format("{}{}.weight", attn, name), fmt::format("{}{}.weight", mix, target)));
  }
  HEARTH_TRY(pair("w", "w", true));
  HEARTH_TRY(pair("a", "a", true));
  // The first layer has no values to move. Readers of such files want tensors there, too, and do
  // not use them.
  HEARTH_TRY(pair(layer == 0 ? "a" : "v", "v", true));
  HEARTH_TRY(pair("g", "g", false));
  for (const char* name : {"k_k", "k_a", "r_k"}) {
    HEARTH_TRY(p.flat(attn + name, fmt::format("{}{}.weight", mix, name), width));
  }
  HEARTH_TRY(norm(attn + "g_norm", mix + "ln"));
  HEARTH_TRY(p.flat(from + "ffn.x_k", to + "channel_mix_lerp_k.weight", width));
  HEARTH_TRY(p.matrix(from + "ffn.key.weight", to + "channel_mix_key.weight"));
  return p.matrix(from + "ffn.value.weight", to + "channel_mix_value.weight");
}

}  // namespace hearth::models
