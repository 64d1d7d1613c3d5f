#include "models/weights/rope_frequencies.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "kernels/base/check.h"
#include "kernels/base/sizes.h"
#include "models/gguf/gguf_file.h"

namespace hearth::models {
namespace {

constexpr float kMaxFactor = 1e6f;

// The (fractional) pair that makes `turns` full turns over `context` positions.
double pair_of_turns(const RopeConfig& config, double turns) {
  return config.dim * std::log(config.original_context / (turns * 2 * std::numbers::pi)) /
         (2 * std::log(double{config.base}));
}

// The share of pair i that keeps its frequency: 1 for fast pairs, 0 for slow ones, a ramp between.
double kept_share(const RopeConfig& config, int32_t i) {
  double first = pair_of_turns(config, config.beta_fast);
  double last = pair_of_turns(config, config.beta_slow);
  if (config.rounded_range) {
    first = std::floor(first);
    last = std::ceil(last);
  }
  first = std::max(0.0, first);
  last = std::min(config.dim - 1.0, last);
  const double ramp = (i - first) / std::max(0.001, last - first);
  return 1.0 - std::clamp(ramp, 0.0, 1.0);
}

Error out_of_range(std::string_view key, float value, std::string_view wanted) {
  return Error::corrupt(fmt::format("{}: {}, want {}", key, value, wanted));
}

}  // namespace

Result<RopeConfig> RopeConfig::load(const GgufFile& file, std::string_view architecture,
                                    int32_t head_dim) {
  const auto key = [architecture](std::string_view rest) {
    return fmt::format("{}.rope.{}", architecture, rest);
  };
  RopeConfig config;
  HEARTH_ASSIGN_OR_RETURN(config.dim, file.get_or<int32_t>(key("dimension_count"), head_dim));
  if (config.dim < 2 || config.dim % 2 != 0 || config.dim > head_dim) {
    return Error::corrupt(fmt::format("{}: {}, want an even number from 2 to the head size {}",
                                      key("dimension_count"), config.dim, head_dim));
  }
  HEARTH_ASSIGN_OR_RETURN(config.base, file.get_or(key("freq_base"), config.base));
  if (config.base <= 1.0f) return out_of_range(key("freq_base"), config.base, "more than 1");

  // Files older than rope.scaling.* have rope.scale_linear; a factor without a type is linear.
  HEARTH_ASSIGN_OR_RETURN(config.factor, file.get_or(key("scale_linear"), 1.0f));
  HEARTH_ASSIGN_OR_RETURN(config.factor, file.get_or(key("scaling.factor"), config.factor));
  if (config.factor == 0.0f) config.factor = 1.0f;  // written by converters for "none"
  if (config.factor < 1.0f || config.factor > kMaxFactor) {
    return out_of_range(key("scaling.factor"), config.factor, "1 to 1e6");
  }
  const std::string original_key = key("scaling.original_context_length");
  HEARTH_ASSIGN_OR_RETURN(config.original_context,
                          file.get_or(original_key, config.original_context));
  if (config.original_context < 1) {
    return out_of_range(original_key, static_cast<float>(config.original_context), "at least 1");
  }
  HEARTH_ASSIGN_OR_RETURN(config.attention_factor, file.get_or(key("scaling.attn_factor"), 1.0f));
  if (!(config.attention_factor > 0.0f && config.attention_factor <= kMaxFactor)) {
    return out_of_range(key("scaling.attn_factor"), config.attention_factor,
                        "more than 0 and at most 1e6");
  }
  HEARTH_ASSIGN_OR_RETURN(const auto type,
                          file.get_or<std::string_view>(key("scaling.type"), "linear"));
  if (type == "none") return config;
  if (type == "linear") {
    if (config.factor != 1.0f) config.scaling = Scaling::kLinear;
    return config;
  }
  if (type == "longrope") {  // its scaling is stored in tensors
    config.needs_divisors = true;
    if (config.factor == 1.0f) return config;
    return out_of_range(key("scaling.factor"), config.factor, "1 with type longrope");
  }
  if (type != "yarn") {
    return Error::unsupported(
        fmt::format("{}: \"{}\", this build knows none, linear, yarn, longrope",
                    key("scaling.type"), printable(type)));
  }
  config.scaling = Scaling::kYarn;
  HEARTH_ASSIGN_OR_RETURN(config.original_context, file.get<int32_t>(original_key));
  HEARTH_ASSIGN_OR_RETURN(config.beta_fast,
                          file.get_or(key("scaling.yarn_beta_fast"), config.beta_fast));
  HEARTH_ASSIGN_OR_RETURN(config.beta_slow,
                          file.get_or(key("scaling.yarn_beta_slow"), config.beta_slow));
  if (config.beta_slow <= 0.0f || config.beta_fast < config.beta_slow) {
    return out_of_range(key("scaling.yarn_beta_slow"), config.beta_slow,
                        "more than 0 and at most yarn_beta_fast");
  }
  return config;
}

std::vector<float> rope_frequencies(const RopeConfig& config, std::span<const float> divisors) {
  const int32_t pairs = config.dim / 2;
  HEARTH_CHECK(divisors.empty() || size32(divisors) == pairs, "{} for {} pairs", divisors.size(),
               pairs);
  std::vector<float> frequencies;
  for (int32_t i = 0; i < pairs; ++i) {
    double frequency = std::pow(double{config.base}, -2.0 * i / config.dim);
    if (!divisors.empty()) frequency /= divisors[i];
    const double squeezed = frequency / config.factor;
    switch (config.scaling) {
      case RopeConfig::Scaling::kNone: break;
      case RopeConfig::Scaling::kLinear: frequency = squeezed; break;
      case RopeConfig::Scaling::kYarn: {
        const double kept = kept_share(config, i);
        frequency = frequency * kept + squeezed * (1.0 - kept);
        break;
      }
    }
    frequencies.push_back(static_cast<float>(frequency));
  }
  return frequencies;
}

float rope_magnitude(const RopeConfig& config) {
  if (config.scaling != RopeConfig::Scaling::kYarn) return config.attention_factor;
  return config.attention_factor * (1.0f + 0.1f * std::log(config.factor));
}

}  // namespace hearth::models
