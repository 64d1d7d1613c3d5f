#include "models/weights/metadata.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "kernels/base/numbers.h"
#include "kernels/base/sizes.h"

namespace hearth::models {
namespace {

/// Keys that change no logit of a decoder.
constexpr std::array<std::string_view, 6> kHarmless = {
    "vocab_size",   "attention.layer_norm_epsilon", "rope.scaling.finetuned",
    "pooling_type", "tensor_data_layout",           "expert_used_count",
};

/// Values that mean the same as a missing key, in addition to 0, false and the empty string.
struct Neutral {
  std::string_view key;
  float value;
};
constexpr std::array<Neutral, 6> kNeutral = {{
    {"attention.causal", 1},
    {"expert_group_count", 1},
    {"expert_group_used_count", 1},
    {"expert_weights_scale", 1},
    {"moe_every_n_layers", 1},
    {"rope.scaling.yarn_ext_factor", 1},
}};

std::string shown(const GgufFile& file, const GgufEntry& entry) {
  if (entry.type == GgufType::kArray) return fmt::format("an array of {}", entry.count);
  if (entry.type == GgufType::kBool) return *file.get<bool>(entry.key) ? "true" : "false";
  if (entry.type == GgufType::kString) {
    return fmt::format("\"{}\"", printable(*file.get<std::string_view>(entry.key)));
  }
  if (is_integer(entry.type)) {
    const GgufInteger value = load_integer(entry.type, entry.payload.data());
    if (value.negative) return fmt::format("{}", static_cast<int64_t>(value.bits));
    return fmt::format("{}", value.bits);
  }
  const auto value = file.get<float>(entry.key);
  return value.ok() ? fmt::format("{}", *value) : "not a number";
}

bool says_nothing(const GgufFile& file, const GgufEntry& entry, std::string_view key) {
  if (entry.count == 0) return true;
  if (entry.type == GgufType::kArray) return false;
  if (entry.type == GgufType::kString) return file.get<std::string_view>(entry.key)->empty();
  float value = 0;
  if (entry.type == GgufType::kBool) {
    value = *file.get<bool>(entry.key) ? 1 : 0;
  } else if (is_integer(entry.type)) {
    const GgufInteger integer = load_integer(entry.type, entry.payload.data());
    value = integer.negative ? -1.0f : static_cast<float>(integer.bits);
  } else {
    const auto number = file.get<float>(entry.key);
    if (!number.ok()) return false;
    value = *number;
  }
  const auto neutral = std::find_if(kNeutral.begin(), kNeutral.end(),
                                    [key](const Neutral& n) { return n.key == key; });
  if (neutral != kNeutral.end() && value == neutral->value) return true;
  return value == 0 && key != "attention.causal";
}

}  // namespace

std::string Metadata::full(std::string_view key) const {
  return fmt::format("{}.{}", architecture_, key);
}

bool Metadata::has(std::string_view key) {
  known_.emplace(key);
  return file_.has(full(key));
}

void Metadata::know(std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) known_.emplace(key);
}

Error Metadata::corrupt(std::string_view key, std::string_view met_and_want) const {
  return Error::corrupt(fmt::format("{}: {}", full(key), met_and_want));
}

Error Metadata::unsupported(std::string_view key, std::string_view met) const {
  return Error::unsupported(fmt::format("{}: {}, which this build does not do for architecture {}",
                                        full(key), met, architecture_));
}

Result<int32_t> Metadata::number(std::string_view key, int32_t most) {
  has(key);
  const GgufEntry* entry = file_.find(full(key));
  if (entry != nullptr && entry->type == GgufType::kArray) {
    return unsupported(key, "a value for each layer");
  }
  HEARTH_ASSIGN_OR_RETURN(const uint32_t value, file_.get<uint32_t>(full(key)));
  if (value >= 1 && std::cmp_less_equal(value, most)) return value;
  return corrupt(key, fmt::format("{}, want 1 to {}", value, most));
}

Result<std::vector<int32_t>> Metadata::numbers(std::string_view key, int32_t most,
                                               int32_t num_layers, int32_t least) {
  has(key);
  const GgufEntry* entry = file_.find(full(key));
  if (entry == nullptr || entry->type != GgufType::kArray) {
    HEARTH_ASSIGN_OR_RETURN(const int32_t value, least == 0 && entry != nullptr
                                                     ? small_or(key, most, 0)
                                                     : number(key, most));
    return std::vector<int32_t>(num_layers, value);
  }
  if (!is_integer(entry->element_type) || !std::cmp_equal(entry->count, num_layers)) {
    return corrupt(key, fmt::format("an array of {} {}, want a number for each of the {} layers",
                                    entry->count, name(entry->element_type), num_layers));
  }
  std::vector<int32_t> values;
  const size_t size = entry->payload.size() / entry->count;
  for (int32_t i = 0; i < num_layers; ++i) {
    const GgufInteger value = load_integer(entry->element_type, entry->payload.data() + i * size);
    if (value.negative || std::cmp_less(value.bits, least) || std::cmp_greater(value.bits, most)) {
      return corrupt(key,
                     fmt::format("{}{} for layer {}, want {} to {}", value.negative ? "-" : "",
                                 value.negative ? 0 - value.bits : value.bits, i, least, most));
    }
    values.push_back(static_cast<int32_t>(value.bits));
  }
  return values;
}

Result<std::vector<int32_t>> Metadata::numbers_or(std::string_view key, int32_t most,
                                                  const std::vector<int32_t>& fallback,
                                                  int32_t least) {
  if (!has(key)) return fallback;
  return numbers(key, most, size32(fallback), least);
}

Result<std::vector<bool>> Metadata::flags_or(std::string_view key, int32_t num_layers,
                                             const std::vector<bool>& fallback) {
  if (!has(key)) return fallback;
  const GgufEntry& entry = *file_.find(full(key));
  if (entry.type != GgufType::kArray || entry.element_type != GgufType::kBool ||
      !std::cmp_equal(entry.count, num_layers)) {
    const bool array = entry.type == GgufType::kArray;
    const std::string met =
        array ? fmt::format("an array of {} {}", entry.count, name(entry.element_type))
              : std::string(name(entry.type));
    return corrupt(key, fmt::format("{}, want a bool for each of the {} layers", met, num_layers));
  }
  std::vector<bool> values;
  for (int32_t i = 0; i < num_layers; ++i) values.push_back(entry.payload[i] != std::byte{0});
  return values;
}

Result<std::vector<float>> Metadata::floats(std::string_view key, int32_t num_layers) {
  if (!has(key)) return corrupt(key, fmt::format("missing, want {} numbers", num_layers));
  const GgufEntry& entry = *file_.find(full(key));
  if (entry.type != GgufType::kArray || entry.element_type != GgufType::kF32 ||
      !std::cmp_equal(entry.count, num_layers)) {
    return corrupt(key, fmt::format("{} of {}, want an array of f32, one for each of the {} layers",
                                    name(entry.type), entry.count, num_layers));
  }
  std::vector<float> values;
  for (int32_t i = 0; i < num_layers; ++i) {
    values.push_back(load_unaligned<float>(entry.payload.data() + i * sizeof(float)));
    if (std::isnan(values.back())) return corrupt(key, fmt::format("not a number for layer {}", i));
  }
  return values;
}

Result<int32_t> Metadata::number_or(std::string_view key, int32_t most, int32_t fallback) {
  if (!has(key)) return fallback;
  return number(key, most);
}

Result<int32_t> Metadata::small_or(std::string_view key, int32_t most, int32_t fallback) {
  HEARTH_ASSIGN_OR_RETURN(const uint32_t value, count_or(key, static_cast<uint32_t>(fallback)));
  if (std::cmp_less_equal(value, most)) return static_cast<int32_t>(value);
  return corrupt(key, fmt::format("{}, want 0 to {}", value, most));
}

Result<uint32_t> Metadata::count_or(std::string_view key, uint32_t fallback) {
  has(key);
  return file_.get_or<uint32_t>(full(key), fallback);
}

Result<bool> Metadata::flag_or(std::string_view key, bool fallback) {
  has(key);
  return file_.get_or<bool>(full(key), fallback);
}

Result<float> Metadata::factor(std::string_view key, float most) {
  has(key);
  HEARTH_ASSIGN_OR_RETURN(const float value, file_.get<float>(full(key)));
  if (value > 0.0f && value <= most) return value;
  return corrupt(key, fmt::format("{}, want more than 0 and at most {}", value, most));
}

Result<float> Metadata::factor_or(std::string_view key, float most, float fallback) {
  if (!has(key)) return fallback;
  HEARTH_ASSIGN_OR_RETURN(const float value, file_.get<float>(full(key)));
  if (value == 0.0f) return fallback;
  return factor(key, most);
}

Result<void> Metadata::refuse_others() const {
  const std::string prefix = architecture_ + ".";
  for (const GgufEntry& entry : file_.metadata()) {
    if (!entry.key.starts_with(prefix)) continue;
    const std::string_view key = entry.key.substr(prefix.size());
    if (known_.contains(key) || std::ranges::count(kHarmless, key) > 0) continue;
    if (says_nothing(file_, entry, key)) continue;
    return Error::unsupported(
        fmt::format("{}: {}, which this build does not do for architecture {}",
                    printable(entry.key), shown(file_, entry), architecture_));
  }
  return {};
}

}  // namespace hearth::models
