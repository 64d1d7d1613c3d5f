#include "models/convert/config_reader.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "kernels/base/numbers.h"
#include "models/gguf/gguf_file.h"

namespace hearth::models {
namespace {

constexpr uint64_t kContextWithoutPositions = 1 << 20;
constexpr uint64_t kMaxExperts = 1 << 12;
constexpr uint64_t kMaxHeads = 1 << 16;

std::vector<float> floats(std::span<const double> values) {
  std::vector<float> out(values.size());
  std::ranges::transform(values, out.begin(), as_float);
  return out;
}

}  // namespace

Error unsupported_key(std::string_view key, std::string_view met) {
  return Error::unsupported(
      fmt::format("config.json: {}: {}, which this build does not convert", key, met));
}
Error corrupt_key(std::string_view key, std::string_view want) {
  return Error::corrupt(fmt::format("config.json: {}: want {}", key, want));
}

ConfigReader::ConfigReader(const Json& config, const ConvertedFamily& family)
    : c_(config), family_(family) {
  out_.family = &family;
  out_.architecture = family.architecture;
}

Result<FamilyKeys> ConfigReader::read() {
  HEARTH_TRY(refuse_what_is_not_computed());
  HEARTH_TRY(read_shape());
  if (family_.attends && family_.rotates) HEARTH_TRY(read_rotation());
  if (!family_.own_layers) HEARTH_TRY(read_windows());
  if (!family_.own_experts) HEARTH_TRY(read_experts());
  HEARTH_TRY(read_scales());
  if (family_.read != nullptr) HEARTH_TRY(family_.read(*this));
  if (!too_large_.empty()) return corrupt_key(too_large_, "a number below 2^32");
  return std::move(out_);
}

void ConfigReader::set(std::string_view key, FamilyKeys::Value value) {
  drop(key);
  out_.entries.emplace_back(fmt::format("{}.{}", out_.architecture, key), std::move(value));
}
void ConfigReader::set_architecture(std::string_view architecture) {
  for (auto& [key, value] : out_.entries) {
    key = fmt::format("{}{}", architecture, key.substr(out_.architecture.size()));
  }
  out_.architecture = architecture;
}
void ConfigReader::set_count(std::string_view key, uint64_t value) {
  if (value > UINT32_MAX) too_large_ = key;
  set(key, narrow<uint32_t>(std::min<uint64_t>(value, UINT32_MAX)));
}
void ConfigReader::set_factor(std::string_view key, double value) { set(key, as_float(value)); }
void ConfigReader::set_factors(std::string_view key, std::span<const double> values) {
  set(key, floats(values));
}
void ConfigReader::add_vector(std::string name, std::span<const double> values) {
  out_.vectors.emplace_back(std::move(name), floats(values));
}
void ConfigReader::drop(std::string_view key) {
  const std::string full = fmt::format("{}.{}", out_.architecture, key);
  std::erase_if(out_.entries, [&full](const auto& entry) { return entry.first == full; });
}

Result<uint64_t> ConfigReader::count_or(std::string_view key, uint64_t fallback) const {
  HEARTH_ASSIGN_OR_RETURN(const auto met, count_at(c_, key));
  return met.value_or(fallback);
}
Result<double> ConfigReader::number_or(std::string_view key, double fallback) const {
  HEARTH_ASSIGN_OR_RETURN(const auto met, number_at(c_, key));
  return met.value_or(fallback);
}
Result<bool> ConfigReader::flag_or(std::string_view key, bool fallback) const {
  HEARTH_ASSIGN_OR_RETURN(const auto met, flag_at(c_, key));
  return met.value_or(fallback);
}
Result<void> ConfigReader::copy_count(std::string_view from, std::string_view to) {
  HEARTH_ASSIGN_OR_RETURN(const uint64_t value, count(from));
  set_count(to, value);
  return {};
}
Result<void> ConfigReader::want_flag(std::string_view key, bool value) const {
  HEARTH_ASSIGN_OR_RETURN(const bool met, flag_or(key, value));
  if (met != value) return unsupported_key(key, met ? "true" : "false");
  return {};
}
Result<void> ConfigReader::want_value(std::string_view key, double value) const {
  HEARTH_ASSIGN_OR_RETURN(const double met, number_or(key, value));
  if (met != value) return unsupported_key(key, fmt::format("{}", met));
  return {};
}

Result<std::vector<std::string>> ConfigReader::names(std::string_view key) const {
  const Json* list = find(c_, key);
  if (list == nullptr) return std::vector<std::string>();
  if (!list->is_array() || list->size() != out_.num_layers) {
    return corrupt_key(key, fmt::format("{} names", out_.num_layers));
  }
  std::vector<std::string> out;
  for (const Json& name : *list) {
    if (!name.is_string()) return corrupt_key(key, "names");
    out.push_back(name.get<std::string>());
  }
  return out;
}
Result<void> ConfigReader::read_kinds() {
  HEARTH_ASSIGN_OR_RETURN(out_.kinds, names("layer_types"));
  return {};
}
void ConfigReader::set_kv_heads(std::string_view attention_kind) {
  std::vector<int32_t> heads;
  for (const std::string& kind : out_.kinds) {
    heads.push_back(kind == attention_kind ? narrow<int32_t>(out_.num_kv_heads) : 0);
  }
  set("attention.head_count_kv", std::move(heads));
}

Result<void> ConfigReader::read_routing(const RoutingKeys& names) {
  HEARTH_ASSIGN_OR_RETURN(out_.num_experts, count(names.count));
  if (out_.num_experts == 0 || out_.num_experts > kMaxExperts) {
    return corrupt_key(names.count, "1 to 4096");
  }
  set_count("expert_count", out_.num_experts);
  HEARTH_TRY(copy_count(names.used, "expert_used_count"));
  HEARTH_TRY(copy_count(names.width, "expert_feed_forward_length"));
  HEARTH_ASSIGN_OR_RETURN(const auto norm, flag_at(c_, "norm_topk_prob"));
  if (norm) set("expert_weights_norm", *norm);
  HEARTH_ASSIGN_OR_RETURN(const auto scale, number_at(c_, "routed_scaling_factor"));
  if (scale) set_factor("expert_weights_scale", *scale);
  if (names.shared.empty()) return {};
  HEARTH_ASSIGN_OR_RETURN(const uint64_t shared, count_or(names.shared, 0));
  set_count("expert_shared_count", shared);
  return {};
}

Result<void> ConfigReader::refuse_what_is_not_computed() {
  if (const Json* quantized = find(c_, "quantization_config"); quantized != nullptr) {
    HEARTH_ASSIGN_OR_RETURN(const auto method, text_at(*quantized, "quant_method"));
    // Other methods are the checkpoint's (packed_matrix.h).
    if (!family_.in_blocks && method.value_or("") == "mxfp4") {
      return unsupported_key("quantization_config", "experts in blocks of MXFP4");
    }
  }
  // Gemma's older files name "gelu" but mean the tanh approximation, which the newer key names.
  const std::string_view key = family_.is_gemma ? "hidden_activation" : family_.activation_key;
  const std::string_view want = family_.is_gemma ? "gelu_pytorch_tanh" : family_.activation;
  HEARTH_ASSIGN_OR_RETURN(const auto activation, text_at(c_, key));
  if (activation && *activation != want) return unsupported_key(key, printable(*activation));
  HEARTH_ASSIGN_OR_RETURN(const auto bidirectional, flag_at(c_, "use_bidirectional_attention"));
  if (bidirectional.value_or(false)) return unsupported_key("use_bidirectional_attention", "true");
  if (find(c_, "clip_qkv") != nullptr) return unsupported_key("clip_qkv", "a bound on q, k and v");
  return {};
}

Result<void> ConfigReader::read_shape() {
  HEARTH_ASSIGN_OR_RETURN(out_.width, want_count(c_, "hidden_size"));
  const Json* kinds = find(c_, "layers_block_type");  // files that list the layers need not count
  if (kinds != nullptr && kinds->is_array()) out_.num_layers = kinds->size();
  if (kinds == nullptr || find(c_, "num_hidden_layers") != nullptr) {
    HEARTH_ASSIGN_OR_RETURN(out_.num_layers, want_count(c_, "num_hidden_layers"));
  }
  if (out_.num_layers == 0 || out_.num_layers > kMaxExperts) {
    return corrupt_key("num_hidden_layers", "1 to 4096");
  }
  HEARTH_ASSIGN_OR_RETURN(const auto context, count_at(c_, family_.context_key));
  // A model without positions need not name a longest text.
  if (!context && family_.attends) return want_count(c_, family_.context_key).take_error();
  context_ = context.value_or(kContextWithoutPositions);
  HEARTH_ASSIGN_OR_RETURN(const double eps, want_number(c_, family_.eps_key));
  HEARTH_ASSIGN_OR_RETURN(out_.tied,
                          flag_or("tie_word_embeddings", family_.is_gemma || family_.tied));
  set_count("context_length", context_);
  set_count("embedding_length", out_.width);
  set_factor(
      family_.layer_norm ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon",
      eps);
  if (family_.attends) return read_heads();
  set_count("attention.head_count", 0);
  set_count("feed_forward_length", 0);
  return {};
}

Result<void> ConfigReader::read_heads() {
  HEARTH_ASSIGN_OR_RETURN(out_.num_heads, want_count(c_, "num_attention_heads"));
  HEARTH_ASSIGN_OR_RETURN(out_.num_kv_heads, count_or("num_key_value_heads", out_.num_heads));
  for (const uint64_t heads : {out_.num_heads, out_.num_kv_heads}) {
    if (heads > 0 && heads <= kMaxHeads) continue;
    return corrupt_key("num_attention_heads, num_key_value_heads", "1 to 65536");
  }
  HEARTH_ASSIGN_OR_RETURN(const auto head_dim, count_at(c_, "head_dim"));
  const bool of_family = family_.is_gemma && !head_dim;
  out_.head_dim = of_family ? 256 : head_dim.value_or(out_.width / out_.num_heads);
  if (out_.head_dim < 2 || out_.head_dim % 2 != 0 || out_.head_dim > kMaxHeads) {
    return corrupt_key("head_dim", "an even number up to 65536");
  }
  const Json* ffn = find(c_, "intermediate_size");
  if (ffn == nullptr || !ffn->is_array()) {  // a list is for `read`
    HEARTH_TRY(copy_count("intermediate_size", "feed_forward_length"));
  }
  set_count("attention.head_count", out_.num_heads);
  set_count("attention.head_count_kv", out_.num_kv_heads);
  set_count("attention.key_length", out_.head_dim);
  set_count("attention.value_length", out_.head_dim);
  return {};
}

// ---- The rotation

const Json* ConfigReader::rope_object(std::string_view kind) const {
  const Json* newer = find(c_, "rope_parameters");
  if (newer == nullptr) return find(c_, "rope_scaling");
  const Json* of_kind = find(*newer, kind);
  return of_kind != nullptr ? of_kind : newer;
}

Result<double> ConfigReader::base_of(const Json* object, std::string_view fallback_key,
                                     double fallback) {
  if (object != nullptr) {
    HEARTH_ASSIGN_OR_RETURN(const auto own, number_at(*object, "rope_theta"));
    if (own) return *own;
  }
  HEARTH_ASSIGN_OR_RETURN(const auto given, number_at(c_, fallback_key));
  return given.value_or(fallback);
}

Result<void> ConfigReader::read_rotation() {
  const Json empty = Json::object();
  const Json* found = rope_object("full_attention");
  const Json& rope = found == nullptr ? empty : *found;
  HEARTH_ASSIGN_OR_RETURN(const double base, base_of(found, "rope_theta", 10000));
  HEARTH_ASSIGN_OR_RETURN(auto partial, number_at(rope, "partial_rotary_factor"));
  if (!partial) {
    HEARTH_ASSIGN_OR_RETURN(partial, number_at(c_, "partial_rotary_factor"));
  }
  if (partial && !(*partial > 0 && *partial <= 1)) {
    return corrupt_key("partial_rotary_factor", "a share of the head");
  }
  rotated_ = whole(as_double(out_.head_dim) * partial.value_or(1.0));
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
  if (kind == "dynamic" && family_.architecture == "hunyuan-dense") return {};  // `read` reads it
  if (kind == "longrope" && family_.architecture == "phi3") return read_longrope(rope);
  return unsupported_key("rope_type", printable(kind));
}

Result<void> ConfigReader::read_linear(const Json& rope) {
  HEARTH_ASSIGN_OR_RETURN(const double factor, want_number(rope, "factor"));
  set("rope.scaling.type", std::string("linear"));
  set_factor("rope.scaling.factor", factor);
  return {};
}

Result<void> ConfigReader::read_yarn(const Json& rope) {
  HEARTH_ASSIGN_OR_RETURN(const double factor, want_number(rope, "factor"));
  HEARTH_ASSIGN_OR_RETURN(const auto original, count_at(rope, "original_max_position_embeddings"));
  HEARTH_ASSIGN_OR_RETURN(const auto fast, number_at(rope, "beta_fast"));
  HEARTH_ASSIGN_OR_RETURN(const auto slow, number_at(rope, "beta_slow"));
  HEARTH_ASSIGN_OR_RETURN(const auto attention, number_at(rope, "attention_factor"));
  HEARTH_ASSIGN_OR_RETURN(const auto truncated, flag_at(rope, "truncate"));
  HEARTH_ASSIGN_OR_RETURN(const auto magnitude, number_at(rope, "mscale"));
  HEARTH_ASSIGN_OR_RETURN(const auto all_magnitude, number_at(rope, "mscale_all_dim"));
  using Yarn = ConvertedFamily::Yarn;
  const bool rounded = family_.yarn != Yarn::kUnrounded;
  if (truncated.value_or(true) != rounded) {
    return unsupported_key("truncate", rounded ? "false" : "true");
  }
  if (factor < 1) return corrupt_key("factor", "at least 1");
  if (family_.yarn == Yarn::kMagnitude) {
    // The two cancel in the rotation. Scores, or queries, have the second.
    if (!all_magnitude || magnitude.value_or(*all_magnitude) != *all_magnitude || attention) {
      return unsupported_key("mscale", "another number than mscale_all_dim");
    }
    set_factor("rope.scaling.yarn_log_multiplier",
               family_.architecture == "deepseek2" ? 0.1 * *all_magnitude : *all_magnitude);
  } else if (magnitude || all_magnitude) {
    return unsupported_key("mscale", "a magnitude of its own");
  }
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
Result<void> ConfigReader::read_llama3(const Json& rope, double base) {
  HEARTH_ASSIGN_OR_RETURN(const double factor, want_number(rope, "factor"));
  HEARTH_ASSIGN_OR_RETURN(const double low, want_number(rope, "low_freq_factor"));
  HEARTH_ASSIGN_OR_RETURN(const double high, want_number(rope, "high_freq_factor"));
  HEARTH_ASSIGN_OR_RETURN(const double original,
                          want_number(rope, "original_max_position_embeddings"));
  if (!(factor >= 1 && low > 0 && high > low && original >= 1 && base > 1)) {
    return corrupt_key("rope_parameters", "factor >= 1 and 0 < low_freq_factor < high_freq_factor");
  }
  std::vector<double> divisors;
  for (uint64_t i = 0; i < rotated_ / 2; ++i) {
    const double frequency = std::pow(base, -2.0 * as_double(i) / as_double(rotated_));
    const double turns = original * frequency / (2 * std::numbers::pi);
    const double kept = std::clamp((turns - low) / (high - low), 0.0, 1.0);
    divisors.push_back(1.0 / ((1 - kept) / factor + kept));
  }
  add_vector("rope_freqs.weight", divisors);
  return {};
}

Result<std::vector<float>> ConfigReader::divisors_at(const Json& rope, std::string_view key) {
  const Json* list = find(rope, key);
  if (list == nullptr || !list->is_array() || list->size() != rotated_ / 2) {
    return corrupt_key(key, fmt::format("{} numbers", rotated_ / 2));
  }
  std::vector<float> out;
  for (const Json& value : *list) {
    if (!value.is_number()) return corrupt_key(key, "numbers");
    out.push_back(value.get<float>());
  }
  return out;
}

// Ding et al. 2024 (LongRoPE).
Result<void> ConfigReader::read_longrope(const Json& rope) {
  HEARTH_ASSIGN_OR_RETURN(auto original, count_at(rope, "original_max_position_embeddings"));
  if (!original) {
    HEARTH_ASSIGN_OR_RETURN(original, count_at(c_, "original_max_position_embeddings"));
  }
  if (!original || *original < 2) {
    return corrupt_key("original_max_position_embeddings", "a number of tokens");
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
Result<void> ConfigReader::check_layer_types() {
  const Json* types = find(c_, "layer_types");
  if (types == nullptr) return {};
  if (!types->is_array() || types->size() != out_.num_layers) {
    return corrupt_key("layer_types", fmt::format("{} names", out_.num_layers));
  }
  for (uint64_t i = 0; i < types->size(); ++i) {
    const uint32_t period = family_.sliding_period;
    const bool slides = period > 0 && i % period != period - 1;
    const std::string_view want = slides ? "sliding_attention" : "full_attention";
    const Json& met = (*types)[i];
    if (met.is_string() && met.get_ref<const std::string&>() == want) continue;
    if (family_.whole_window) continue;  // the window decides, not a pattern
    return unsupported_key("layer_types", fmt::format("layer {} is not {}", i, want));
  }
  return {};
}

Result<void> ConfigReader::read_windows() {
  HEARTH_TRY(check_layer_types());
  HEARTH_ASSIGN_OR_RETURN(const auto window, count_at(c_, "sliding_window"));
  HEARTH_ASSIGN_OR_RETURN(const auto used, flag_at(c_, "use_sliding_window"));
  if (family_.sliding_period == 0 && !family_.whole_window) {
    if (used.value_or(false)) return unsupported_key("use_sliding_window", "true");
    return read_layers_without_rotation();
  }
  if (family_.sliding_period > 0 && !window)
    return corrupt_key("sliding_window", "a number of tokens");
  if (window) set_count("attention.sliding_window", *window);
  if (family_.sliding_period == 0) return {};
  for (const char* key : {"_sliding_window_pattern", "sliding_window_pattern"}) {
    HEARTH_ASSIGN_OR_RETURN(const auto period, count_at(c_, key));
    if (period && *period != family_.sliding_period) {
      return unsupported_key(key, fmt::format("{}", *period));
    }
  }
  const Json* rope = rope_object("sliding_attention");
  HEARTH_ASSIGN_OR_RETURN(
      const double base,
      base_of(family_.is_gemma && find(c_, "rope_parameters") == nullptr ? nullptr : rope,
              "rope_local_base_freq", 10000));
  if (family_.local_base) set_factor("rope.freq_base_swa", base);
  return {};
}

Result<void> ConfigReader::read_layers_without_rotation() {
  const Json* rotated = find(c_, "no_rope_layers");
  if (rotated == nullptr || family_.model_type != "smollm3") return {};
  if (!rotated->is_array() || rotated->size() != out_.num_layers) {
    return corrupt_key("no_rope_layers", fmt::format("{} numbers", out_.num_layers));
  }
  for (uint64_t i = 0; i < rotated->size(); ++i) {
    const Json& flag = (*rotated)[i];
    const bool want = i % 4 != 3;
    if (flag.is_number_unsigned() && (flag.get<uint64_t>() != 0) == want) continue;
    return unsupported_key("no_rope_layers", fmt::format("layer {} is not as every fourth", i));
  }
  return {};
}

// ---- Experts and scales

Result<void> ConfigReader::read_experts() {
  HEARTH_ASSIGN_OR_RETURN(auto count, count_at(c_, "num_local_experts"));
  if (!count) {
    HEARTH_ASSIGN_OR_RETURN(count, count_at(c_, "num_experts"));
  }
  if (!count || *count == 0) return {};
  if (*count > kMaxExperts) return corrupt_key("num_experts", "at most 4096");
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
    return unsupported_key("decoder_sparse_step", fmt::format("{}", *sparse));
  const Json* dense = find(c_, "mlp_only_layers");
  if (dense != nullptr && !dense->empty()) {
    return unsupported_key("mlp_only_layers", "layers without experts");
  }
  return {};
}

Result<void> ConfigReader::read_scales() {
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
  for (const auto& [from, to] : {std::pair{"attn_logit_softcapping", "attn_logit_softcapping"},
                                 std::pair{"final_logit_softcapping", "final_logit_softcapping"}}) {
    HEARTH_ASSIGN_OR_RETURN(const auto value, number_at(c_, from));
    if (value) set_factor(to, *value);
  }
  HEARTH_ASSIGN_OR_RETURN(const auto scalar, number_at(c_, "query_pre_attn_scalar"));
  if (!scalar) return {};
  const bool by_width = family_.largest_by_width == out_.num_layers;
  const uint64_t want = by_width ? out_.width / out_.num_heads : out_.head_dim;
  if (*scalar == as_double(want)) return {};
  return unsupported_key("query_pre_attn_scalar", fmt::format("{}, not {}", *scalar, want));
}

Result<FamilyKeys> family_keys(const Json& config) {
  HEARTH_ASSIGN_OR_RETURN(const auto type, text_at(config, "model_type"));
  if (!type) return Error::corrupt("config.json: model_type: missing");
  std::string known;
  for (const ConvertedFamily& family : converted_families()) {
    if (family.model_type == *type) return ConfigReader(config, family).read();
    known += fmt::format("{}{}", known.empty() ? "" : ", ", family.model_type);
  }
  return Error::unsupported(fmt::format("config.json: model_type: \"{}\", this build converts {}",
                                        printable(*type), known));
}

}  // namespace hearth::models
