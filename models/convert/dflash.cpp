#include "models/convert/dflash.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "kernels/base/numbers.h"
#include "models/convert/config_reader.h"
#include "models/gguf/gguf_file.h"
#include "models/gguf/heads_keys.h"

namespace hearth::models {
namespace {

constexpr const char* kConfig = "dflash_config";

constexpr ConvertedFamily dflash_family() {
  ConvertedFamily f{.model_type = "", .architecture = kDFlashArchitecture};
  f.rope_divisors = true;
  f.own_layers = true;
  f.own_experts = true;
  return f;
}
constexpr ConvertedFamily kDFlashFamily = dflash_family();

class DFlashPlanner : private HeadPlanner {
 public:
  explicit DFlashPlanner(const Checkpoint& checkpoint)
      : HeadPlanner(checkpoint), config_(with_keys_of(in_.config(), {kConfig})) {}

  Result<HeadPlan> plan(const std::filesystem::path& target) {
    ConfigReader reader(config_, kDFlashFamily);
    HEARTH_ASSIGN_OR_RETURN(out_.keys, reader.read());
    HEARTH_TRY(plan_keys());
    if (!target.empty()) {
      HEARTH_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::open(target));
      HEARTH_ASSIGN_OR_RETURN(const auto name, file.get_or<std::string_view>("general.name", ""));
      if (!name.empty()) set("target.name", std::string(name));
    }
    HEARTH_TRY(plan_ends());
    for (uint64_t i = 0; i < out_.keys.num_layers; ++i) HEARTH_TRY(plan_layer(i));
    return finish("a DFlash drafter");
  }

 private:
  Result<void> plan_keys() {
    for (const char* key : {"use_sliding_window", "use_swa"}) {
      HEARTH_ASSIGN_OR_RETURN(const auto slides, flag_at(config_, key));
      if (slides.value_or(false)) return unsupported_key(key, "true");
    }
    HEARTH_ASSIGN_OR_RETURN(const uint64_t block, want_count(config_, "block_size"));
    HEARTH_ASSIGN_OR_RETURN(vocab_size_, want_count(config_, "vocab_size"));
    HEARTH_ASSIGN_OR_RETURN(const uint64_t mask, want_count(config_, "mask_token_id"));
    if (block > INT32_MAX) return corrupt_key("block_size", "at most 2147483647");
    if (vocab_size_ > INT32_MAX) return corrupt_key("vocab_size", "at most 2147483647");
    if (mask >= vocab_size_) return corrupt_key("mask_token_id", "a token of the vocabulary");
    set("block_size", narrow<uint32_t>(block));
    set("vocab_size", narrow<uint32_t>(vocab_size_));
    HEARTH_TRY(plan_target_layers());
    for (const char* key : {"is_causal", "causal"}) {
      HEARTH_ASSIGN_OR_RETURN(const auto causal, flag_at(config_, key));
      if (!causal) continue;
      set("attention.causal", *causal);
      break;
    }
    const std::pair<const char*, const char*> factors[] = {
        {"input_embedding_scale", "embedding_scale"},
        {"output_multiplier", "logit_scale"},
        {"final_logit_softcapping", "final_logit_softcapping"}};
    for (const auto& [from, to] : factors) {
      HEARTH_ASSIGN_OR_RETURN(const auto factor, number_at(config_, from));
      if (factor.value_or(0) > 0) set(to, static_cast<float>(*factor));
    }
    HEARTH_ASSIGN_OR_RETURN(const auto value_scale, number_at(config_, "attention_value_scale"));
    if (value_scale.value_or(1) == 1) return {};
    return unsupported_key("attention_value_scale", fmt::format("{}", *value_scale));
  }

  // Published ids are of layers whose outputs are used: the inputs of the layers after them.
  Result<void> plan_target_layers() {
    constexpr const char* kKey = "target_layer_ids";
    const Json* ids = find(config_, kKey);
    const auto fits = [](const Json& id) {
      return id.is_number_unsigned() && id.get<uint64_t>() < INT32_MAX;
    };
    if (ids == nullptr || !ids->is_array() || ids->empty() || !std::ranges::all_of(*ids, fits)) {
      return corrupt_key(kKey, "a list of layers");
    }
    std::vector<int32_t> layers;
    for (const Json& id : *ids) layers.push_back(id.get<int32_t>() + 1);
    num_target_layers_ = layers.size();
    set("target_layers", std::move(layers));
    return {};
  }

  std::string published(const std::string& name) const {
    const std::string with = "model." + name;
    return in_.tensor(with) != nullptr ? with : name;
  }

  Result<void> plan_ends() {
    const uint64_t width = out_.keys.width;
    HEARTH_TRY(add(published("fc.weight"), "fc.weight", {width, num_target_layers_ * width}));
    HEARTH_TRY(add(published("hidden_norm.weight"), "enc.output_norm.weight", {width}));
    HEARTH_TRY(add(published("norm.weight"), "output_norm.weight", {width}));
    const std::pair<const char*, const char*> own[] = {{"embed_tokens.weight", "token_embd.weight"},
                                                       {"lm_head.weight", "output.weight"}};
    for (const auto& [from, to] : own) {
      if (in_.tensor(published(from)) == nullptr) continue;
      HEARTH_TRY(add(published(from), to, {vocab_size_, width}));
    }
    return {};
  }

  Result<void> plan_layer(uint64_t index) {
    const FamilyKeys& k = out_.keys;
    const uint64_t q = k.num_heads * k.head_dim, kv = k.num_kv_heads * k.head_dim;
    HEARTH_ASSIGN_OR_RETURN(const uint64_t ffn, want_count(config_, "intermediate_size"));
    struct Part {
      const char *from, *to;
      std::vector<uint64_t> shape;
    };
    const Part parts[] = {{"input_layernorm", "attn_norm", {k.width}},
                          {"self_attn.q_proj", "attn_q", {q, k.width}},
                          {"self_attn.k_proj", "attn_k", {kv, k.width}},
                          {"self_attn.v_proj", "attn_v", {kv, k.width}},
                          {"self_attn.q_norm", "attn_q_norm", {k.head_dim}},
                          {"self_attn.k_norm", "attn_k_norm", {k.head_dim}},
                          {"self_attn.o_proj", "attn_output", {k.width, q}},
                          {"post_attention_layernorm", "ffn_norm", {k.width}},
                          {"mlp.gate_proj", "ffn_gate", {ffn, k.width}},
                          {"mlp.up_proj", "ffn_up", {ffn, k.width}},
                          {"mlp.down_proj", "ffn_down", {k.width, ffn}}};
    for (const Part& part : parts) {
      HEARTH_TRY(add(published(fmt::format("layers.{}.{}.weight", index, part.from)),
                     fmt::format("blk.{}.{}.weight", index, part.to), part.shape));
    }
    return {};
  }

  const Json config_;
  uint64_t vocab_size_ = 0, num_target_layers_ = 0;
};

}  // namespace

bool has_dflash(const Json& config) { return has_architecture_with(config, "DFlash"); }

uint32_t dflash_mask_token(const Json& config) {
  return with_keys_of(config, {kConfig}).at("mask_token_id").get<uint32_t>();
}

Result<HeadPlan> plan_dflash(const Checkpoint& checkpoint, const std::filesystem::path& target) {
  return DFlashPlanner(checkpoint).plan(target);
}

}  // namespace hearth::models
