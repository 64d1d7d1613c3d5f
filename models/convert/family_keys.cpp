#include "models/convert/family_keys.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "kernels/base/numbers.h"
#include "models/gguf/gguf_file.h"

namespace hearth::models {
namespace {

Error unsupported(std::string_view key, std::string_view met) {
  return Error::unsupported(
      fmt::format("config.json: {}: {}, which this build does not convert", key, met));
}
Error corrupt_config(std::string_view key, std::string_view want) {
  return Error::corrupt(fmt::format("config.json: {}: want {}", key, want));
}

struct ConvertedFamily {
  std::string_view model_type;  // of config.json
  std::string_view architecture;
  bool swaps_pairs = false;
  bool is_gemma = false;
  bool norms_branches = false;
  bool norms_before = true;
  bool rope_divisors = false;   // accepts Llama 3's rope scaling
  uint32_t sliding_period = 0;  // every sliding_period-th layer is full, as in the loader
  bool whole_window = false;    // all layers slide if a window is given
  uint64_t largest_by_width =
      0;  // number of layers of the model that scales scores by width / heads
};

constexpr std::array kConvertedFamilies = {
    ConvertedFamily{
        .model_type = "llama", .architecture = "llama", .swaps_pairs = true, .rope_divisors = true},
    ConvertedFamily{.model_type = "mistral",
                    .architecture = "llama",
                    .swaps_pairs = true,
                    .rope_divisors = true,
                    .whole_window = true},
    ConvertedFamily{.model_type = "mixtral",
                    .architecture = "llama",
                    .swaps_pairs = true,
                    .rope_divisors = true,
                    .whole_window = true},
    ConvertedFamily{.model_type = "qwen2", .architecture = "qwen2"},
    ConvertedFamily{.model_type = "qwen3", .architecture = "qwen3"},
    ConvertedFamily{.model_type = "qwen3_moe", .architecture = "qwen3moe"},
    ConvertedFamily{.model_type = "phi3", .architecture = "phi3", .whole_window = true},
    ConvertedFamily{.model_type = "gemma", .architecture = "gemma", .is_gemma = true},
    ConvertedFamily{.model_type = "gemma2",
                    .architecture = "gemma2",
                    .is_gemma = true,
                    .norms_branches = true,
                    .sliding_period = 2,
                    .largest_by_width = 46},
    ConvertedFamily{.model_type = "gemma3_text",
                    .architecture = "gemma3",
                    .is_gemma = true,
                    .norms_branches = true,
                    .sliding_period = 6,
                    .largest_by_width = 62},
    ConvertedFamily{.model_type = "granite",
                    .architecture = "granite",
                    .swaps_pairs = true,
                    .rope_divisors = true},
    ConvertedFamily{.model_type = "granitemoe",
                    .architecture = "granitemoe",
                    .swaps_pairs = true,
                    .rope_divisors = true},
    ConvertedFamily{.model_type = "granitemoeshared",
                    .architecture = "granitemoe",
                    .swaps_pairs = true,
                    .rope_divisors = true},
    ConvertedFamily{.model_type = "smollm3", .architecture = "smollm3", .swaps_pairs = true},
    ConvertedFamily{.model_type = "olmo2",
                    .architecture = "olmo2",
                    .norms_branches = true,
                    .norms_before = false},
    ConvertedFamily{.model_type = "olmo3",
                    .architecture = "olmo2",
                    .norms_branches = true,
                    .norms_before = false,
                    .sliding_period = 4},
    ConvertedFamily{.model_type = "olmoe", .architecture = "olmoe"},
};

class Reader {
 public:
  Reader(const Json& config, const ConvertedFamily& family) : c_(config), family_(family) {
    out_.architecture = family.architecture;
    out_.swaps_pairs = family.swaps_pairs;
    out_.adds_one_to_norms = family.is_gemma;
    out_.norms_branches = family.norms_branches;
    out_.norms_before = family.norms_before;
  }

  Result<FamilyKeys> read() {
    HEARTH_TRY(refuse_what_is_not_computed());
    HEARTH_TRY(read_shape());
    HEARTH_TRY(read_rotation());
    HEARTH_TRY(read_windows());
    HEARTH_TRY(read_experts());
    HEARTH_TRY(read_scales());
    return std::move(out_);
  }

 private:
  void set(std::string_view key, FamilyKeys::Value value) {
    out_.entries.emplace_back(fmt::format("{}.{}", out_.architecture, key), std::move(value));
  }
  void set_count(std::string_view key, uint64_t value) { set(key, narrow<uint32_t>(value)); }
  void set_factor(std::string_view key, double value) { set(key, static_cast<float>(value)); }

  Result<void> refuse_what_is_not_computed() {
    if (find(c_, "quantization_config") != nullptr) {
      return unsupported("quantization_config", "weights that are quantized already");
    }
    // Gemma's older files name "gelu" but mean the tanh approximation, which the newer key names.
    const std::string_view key = family_.is_gemma ? "hidden_activation" : "hidden_act";
    const std::string_view want = family_.is_gemma ? "gelu_pytorch_tanh" : "silu";
    HEARTH_ASSIGN_OR_RETURN(const auto activation, text_at(c_, key));
    if (activation && *activation != want) return unsupported(key, printable(*activation));
    HEARTH_ASSIGN_OR_RETURN(const auto bidirectional, flag_at(c_, "use_bidirectional_attention"));
    if (bidirectional.value_or(false)) return unsupported("use_bidirectional_attention", "true");
    if (find(c_, "clip_qkv") != nullptr) return unsupported("clip_qkv", "a bound on q, k and v");
    return {};
  }

  Result<void> read_shape() {
    HEARTH_ASSIGN_OR_RETURN(out_.width, want_count(c_, "hidden_size"));
    HEARTH_ASSIGN_OR_RETURN(out_.num_layers, want_count(c_, "num_hidden_layers"));
    HEARTH_ASSIGN_OR_RETURN(out_.num_heads, want_count(c_, "num_attention_heads"));
    HEARTH_ASSIGN_OR_RETURN(const auto kv_heads, count_at(c_, "num_key_value_heads"));
    out_.num_kv_heads = kv_heads.value_or(out_.num_heads);
    if (out_.num_heads == 0 || out_.num_kv_heads == 0 || out_.num_layers > (1u << 12)) {
      return corrupt_config("num_attention_heads, num_key_value_heads, num_hidden_layers",
                            "numbers of a model");
    }
    HEARTH_ASSIGN_OR_RETURN(const uint64_t ffn, want_count(c_, "intermediate_size"));
    HEARTH_ASSIGN_OR_RETURN(context_, want_count(c_, "max_position_embeddings"));
    HEARTH_ASSIGN_OR_RETURN(const double eps, want_number(c_, "rms_norm_eps"));
    HEARTH_ASSIGN_OR_RETURN(const auto head_dim, count_at(c_, "head_dim"));
    const bool of_family = family_.is_gemma && !head_dim;
    head_dim_ = of_family ? 256 : head_dim.value_or(out_.width / out_.num_heads);
    if (head_dim_ < 2 || head_dim_ % 2 != 0) return corrupt_config("head_dim", "an even number");
    HEARTH_ASSIGN_OR_RETURN(const auto tied, flag_at(c_, "tie_word_embeddings"));
    out_.tied = tied.value_or(family_.is_gemma);
    set_count("context_length", context_);
    set_count("embedding_length", out_.width);
    set_count("block_count", out_.num_layers);
    set_count("feed_forward_length", ffn);
    set_count("attention.head_count", out_.num_heads);
    set_count("attention.head_count_kv", out_.num_kv_heads);
    set_count("attention.key_length", head_dim_);
    set_count("attention.value_length", head_dim_);
    set_factor("attention.layer_norm_rms_epsilon", eps);
    return {};
  }

  // ---- The rotation

  /// The object with rope_type and its numbers. Newer files have rope_parameters, one object per
  /// kind of layer if these differ; older files have rope_theta next to rope_scaling.
  const Json* rope_object(std::string_view kind) const {
    const Json* newer = find(c_, "rope_parameters");
    if (newer == nullptr) return find(c_, "rope_scaling");
    const Json* of_kind = find(*newer, kind);
    return of_kind != nullptr ? of_kind : newer;
  }

  Result<double> base_of(const Json* object, std::string_view fallback_key, double fallback) {
    if (object != nullptr) {
      HEARTH_ASSIGN_OR_RETURN(const auto own, number_at(*object, "rope_theta"));
      if (own) return *own;
    }
    HEARTH_ASSIGN_OR_RETURN(const auto given, number_at(c_, fallback_key));
    return given.value_or(fallback);
  }

  Result<void> read_rotation() {
    const Json empty = Json::object();
    const Json* found = rope_object("full_attention");
    const Json& rope = found == nullptr ? empty : *found;
    HEARTH_ASSIGN_OR_RETURN(const double base, base_of(found, "rope_theta", 10000));
    HEARTH_ASSIGN_OR_RETURN(auto partial, number_at(rope, "partial_rotary_factor"));
    if (!partial) {
      HEARTH_ASSIGN_OR_RETURN(partial, number_at(c_, "partial_rotary_factor"));
    }
    if (partial && !(*partial > 0 && *partial <= 1)) {
      return corrupt_config("partial_rotary_factor", "a share of the head");
    }
    rotated_ = static_cast<uint64_t>(as_double(head_dim_) * partial.value_or(1.0));
    set_count("rope.dimension_count", rotated_);
    set_factor("rope.freq_base", base);
    HEARTH_ASSIGN_OR_RETURN(auto type, text_at(rope, "rope_type"));
    if (!type) {
      HEARTH_ASSIGN_OR_RETURN(type, text_at(rope, "type"));
    }
    const std::string kind = type.value_or("default");
    if (kind == "default") return {};
    if (kind == "linear") return read_linear(rope);
    if (kind == "yarn") return read_yarn(rope);
    if (kind == "llama3" && family_.rope_divisors) return read_llama3(rope, base);
    if (kind == "longrope" && family_.architecture == "phi3") return read_longrope(rope);
    return unsupported("rope_type", printable(kind));
  }

  Result<void> read_linear(const Json& rope) {
    HEARTH_ASSIGN_OR_RETURN(const double factor, want_number(rope, "factor"));
    set("rope.scaling.type", std::string("linear"));
    set_factor("rope.scaling.factor", factor);
    return {};
  }

  Result<void> read_yarn(const Json& rope) {
    HEARTH_ASSIGN_OR_RETURN(const double factor, want_number(rope, "factor"));
    HEARTH_ASSIGN_OR_RETURN(const auto original,
                            count_at(rope, "original_max_position_embeddings"));
    HEARTH_ASSIGN_OR_RETURN(const auto fast, number_at(rope, "beta_fast"));
    HEARTH_ASSIGN_OR_RETURN(const auto slow, number_at(rope, "beta_slow"));
    HEARTH_ASSIGN_OR_RETURN(const auto attention, number_at(rope, "attention_factor"));
    HEARTH_ASSIGN_OR_RETURN(const auto truncated, flag_at(rope, "truncate"));
    if (find(rope, "mscale") != nullptr) return unsupported("mscale", "a magnitude of its own");
    if (!truncated.value_or(true)) return unsupported("truncate", "false");
    if (factor < 1) return corrupt_config("factor", "at least 1");
    set("rope.scaling.type", std::string("yarn"));
    set_factor("rope.scaling.factor", factor);
    set_count("rope.scaling.original_context_length", original.value_or(context_));
    set_factor("rope.scaling.yarn_beta_fast", fast.value_or(32));
    set_factor("rope.scaling.yarn_beta_slow", slow.value_or(1));
    // The loader multiplies by the paper's magnitude. A given one replaces that, so it is divided
    // out.
    if (attention) {
      set_factor("rope.scaling.attn_factor", *attention / (0.1 * std::log(factor) + 1));
    }
    return {};
  }

  // Dubey et al. 2024 (Llama 3): slow pairs rotate `factor` times slower, fast ones as before, with
  // a ramp between.
  Result<void> read_llama3(const Json& rope, double base) {
    HEARTH_ASSIGN_OR_RETURN(const double factor, want_number(rope, "factor"));
    HEARTH_ASSIGN_OR_RETURN(const double low, want_number(rope, "low_freq_factor"));
    HEARTH_ASSIGN_OR_RETURN(const double high, want_number(rope, "high_freq_factor"));
    HEARTH_ASSIGN_OR_RETURN(const double original,
                            want_number(rope, "original_max_position_embeddings"));
    if (!(factor >= 1 && low > 0 && high > low && original >= 1 && base > 1)) {
      return corrupt_config("rope_parameters",
                            "factor >= 1 and 0 < low_freq_factor < high_freq_factor");
    }
    std::vector<float> divisors;
    for (uint64_t i = 0; i < rotated_ / 2; ++i) {
      const double frequency = std::pow(base, -2.0 * as_double(i) / as_double(rotated_));
      const double turns = original * frequency / (2 * std::numbers::pi);
      const double kept = std::clamp((turns - low) / (high - low), 0.0, 1.0);
      divisors.push_back(static_cast<float>(1.0 / ((1 - kept) / factor + kept)));
    }
    out_.vectors.emplace_back("rope_freqs.weight", std::move(divisors));
    return {};
  }

  Result<std::vector<float>> divisors_at(const Json& rope, std::string_view key) {
    const Json* list = find(rope, key);
    if (list == nullptr || !list->is_array() || list->size() != rotated_ / 2) {
      return corrupt_config(key, fmt::format("{} numbers", rotated_ / 2));
    }
    std::vector<float> out;
    for (const Json& value : *list) {
      if (!value.is_number()) return corrupt_config(key, "numbers");
      out.push_back(value.get<float>());
    }
    return out;
  }

  // Ding et al. 2024 (LongRoPE).
  Result<void> read_longrope(const Json& rope) {
    HEARTH_ASSIGN_OR_RETURN(auto original, count_at(rope, "original_max_position_embeddings"));
    if (!original) {
      HEARTH_ASSIGN_OR_RETURN(original, count_at(c_, "original_max_position_embeddings"));
    }
    if (!original || *original < 2) {
      return corrupt_config("original_max_position_embeddings", "a number of tokens");
    }
    HEARTH_ASSIGN_OR_RETURN(std::vector<float> shorter, divisors_at(rope, "short_factor"));
    HEARTH_ASSIGN_OR_RETURN(std::vector<float> longer, divisors_at(rope, "long_factor"));
    HEARTH_ASSIGN_OR_RETURN(const auto given, number_at(rope, "attention_factor"));
    const double stretch = as_double(context_) / as_double(*original);
    const double own =
        stretch <= 1 ? 1 : std::sqrt(1 + std::log(stretch) / std::log(as_double(*original)));
    set_count("rope.scaling.original_context_length", *original);
    set_factor("rope.scaling.attn_factor", given.value_or(own));
    out_.vectors.emplace_back("rope_factors_short.weight", std::move(shorter));
    out_.vectors.emplace_back("rope_factors_long.weight", std::move(longer));
    return {};
  }

  // ---- Attention windows per layer

  /// The loader knows the family's pattern of layer types; a file with another pattern is rejected.
  Result<void> check_layer_types() {
    const Json* types = find(c_, "layer_types");
    if (types == nullptr) return {};
    if (!types->is_array() || types->size() != out_.num_layers) {
      return corrupt_config("layer_types", fmt::format("{} names", out_.num_layers));
    }
    for (uint64_t i = 0; i < types->size(); ++i) {
      const uint32_t period = family_.sliding_period;
      const bool slides = period > 0 && i % period != period - 1;
      const std::string_view want = slides ? "sliding_attention" : "full_attention";
      const Json& met = (*types)[i];
      if (met.is_string() && met.get_ref<const std::string&>() == want) continue;
      if (family_.whole_window) continue;  // the window decides, not a pattern
      return unsupported("layer_types", fmt::format("layer {} is not {}", i, want));
    }
    return {};
  }

  Result<void> read_windows() {
    HEARTH_TRY(check_layer_types());
    HEARTH_ASSIGN_OR_RETURN(const auto window, count_at(c_, "sliding_window"));
    HEARTH_ASSIGN_OR_RETURN(const auto used, flag_at(c_, "use_sliding_window"));
    if (family_.sliding_period == 0 && !family_.whole_window) {
      if (used.value_or(false)) return unsupported("use_sliding_window", "true");
      return read_layers_without_rotation();
    }
    if (family_.sliding_period > 0 && !window)
      return corrupt_config("sliding_window", "a number of tokens");
    if (window) set_count("attention.sliding_window", *window);
    if (family_.sliding_period == 0) return {};
    for (const char* key : {"_sliding_window_pattern", "sliding_window_pattern"}) {
      HEARTH_ASSIGN_OR_RETURN(const auto period, count_at(c_, key));
      if (period && *period != family_.sliding_period) {
        return unsupported(key, fmt::format("{}", *period));
      }
    }
    const Json* rope = rope_object("sliding_attention");
    HEARTH_ASSIGN_OR_RETURN(
        const double base,
        base_of(family_.is_gemma && find(c_, "rope_parameters") == nullptr ? nullptr : rope,
                "rope_local_base_freq", 10000));
    if (family_.model_type != "gemma2") set_factor("rope.freq_base_swa", base);
    return {};
  }

  Result<void> read_layers_without_rotation() {
    const Json* rotated = find(c_, "no_rope_layers");
    if (rotated == nullptr || family_.model_type != "smollm3") return {};
    if (!rotated->is_array() || rotated->size() != out_.num_layers) {
      return corrupt_config("no_rope_layers", fmt::format("{} numbers", out_.num_layers));
    }
    for (uint64_t i = 0; i < rotated->size(); ++i) {
      const Json& flag = (*rotated)[i];
      const bool want = i % 4 != 3;
      if (flag.is_number_unsigned() && (flag.get<uint64_t>() != 0) == want) continue;
      return unsupported("no_rope_layers", fmt::format("layer {} is not as every fourth", i));
    }
    return {};
  }

  // ---- Experts and scales

  Result<void> read_experts() {
    HEARTH_ASSIGN_OR_RETURN(auto count, count_at(c_, "num_local_experts"));
    if (!count) {
      HEARTH_ASSIGN_OR_RETURN(count, count_at(c_, "num_experts"));
    }
    if (!count || *count == 0) return {};
    if (*count > (1u << 12)) return corrupt_config("num_experts", "at most 4096");
    out_.num_experts = *count;
    HEARTH_ASSIGN_OR_RETURN(const uint64_t used, want_count(c_, "num_experts_per_tok"));
    set_count("expert_count", *count);
    set_count("expert_used_count", used);
    HEARTH_ASSIGN_OR_RETURN(const auto ffn, count_at(c_, "moe_intermediate_size"));
    if (ffn) set_count("expert_feed_forward_length", *ffn);
    HEARTH_ASSIGN_OR_RETURN(const auto norm, flag_at(c_, "norm_topk_prob"));
    if (norm) set("expert_weights_norm", *norm);
    HEARTH_ASSIGN_OR_RETURN(const auto shared, count_at(c_, "shared_intermediate_size"));
    if (shared && *shared > 0) set_count("expert_shared_feed_forward_length", *shared);
    HEARTH_ASSIGN_OR_RETURN(const auto sparse, count_at(c_, "decoder_sparse_step"));
    if (sparse.value_or(1) != 1)
      return unsupported("decoder_sparse_step", fmt::format("{}", *sparse));
    const Json* dense = find(c_, "mlp_only_layers");
    if (dense != nullptr && !dense->empty()) {
      return unsupported("mlp_only_layers", "layers without experts");
    }
    return {};
  }

  Result<void> read_scales() {
    if (family_.architecture.starts_with("granite")) {
      constexpr std::pair<const char*, const char*> kScales[] = {
          {"embedding_multiplier", "embedding_scale"},
          {"residual_multiplier", "residual_scale"},
          {"attention_multiplier", "attention.scale"},
          {"logits_scaling", "logit_scale"}};
      for (const auto& [from, to] : kScales) {
        HEARTH_ASSIGN_OR_RETURN(const double value, want_number(c_, from));
        set_factor(to, value);
      }
    }
    for (const auto& [from, to] :
         {std::pair{"attn_logit_softcapping", "attn_logit_softcapping"},
          std::pair{"final_logit_softcapping", "final_logit_softcapping"}}) {
      HEARTH_ASSIGN_OR_RETURN(const auto value, number_at(c_, from));
      if (value) set_factor(to, *value);
    }
    HEARTH_ASSIGN_OR_RETURN(const auto scalar, number_at(c_, "query_pre_attn_scalar"));
    if (!scalar) return {};
    const bool by_width = family_.largest_by_width == out_.num_layers;
    const uint64_t want = by_width ? out_.width / out_.num_heads : head_dim_;
    if (*scalar == as_double(want)) return {};
    return unsupported("query_pre_attn_scalar", fmt::format("{}, not {}", *scalar, want));
  }

  const Json& c_;
  const ConvertedFamily& family_;
  FamilyKeys out_;
  uint64_t context_ = 0;
  uint64_t head_dim_ = 0;
  uint64_t rotated_ = 0;  // values of a head
};

}  // namespace

Result<FamilyKeys> family_keys(const Json& config) {
  HEARTH_ASSIGN_OR_RETURN(const auto type, text_at(config, "model_type"));
  if (!type) return Error::corrupt("config.json: model_type: missing");
  std::string known;
  for (const ConvertedFamily& family : kConvertedFamilies) {
    if (family.model_type == *type) return Reader(config, family).read();
    known += fmt::format("{}{}", known.empty() ? "" : ", ", family.model_type);
  }
  return Error::unsupported(fmt::format("config.json: model_type: \"{}\", this build converts {}",
                                        printable(*type), known));
}

}  // namespace hearth::models
