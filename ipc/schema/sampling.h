#pragma once
// Sampling parameters for requests that leave them out: one set per model, the same for every
// client.

#include <cstdint>
#include <optional>
#include <string_view>

namespace hearth::ipc {

/// The sampling parameters that a model's file or the configuration sets. Ranges are those of the
/// fields of a generate request.
struct SamplingSettings {
  std::optional<float> temperature{};
  std::optional<int32_t> top_k{};
  std::optional<float> top_p{};
  std::optional<float> min_p{};
  std::optional<float> repetition_penalty{};
  std::optional<int32_t> penalty_window{};
  bool operator==(const SamplingSettings&) const = default;
};

/// Sets the member of that name. False, and nothing set: there is none, or a generate request may
/// not have that value.
bool set_sampling(std::string_view name, double value, SamplingSettings* settings);

/// The parameters of a model. The values here apply if neither file nor configuration sets any.
struct SamplingDefaults {
  float temperature = 0.8f;
  int32_t top_k = 40;
  float top_p = 0.95f;
  float min_p = 0.0f;
  float repetition_penalty = 1.0f;
  int32_t penalty_window = 256;
  bool operator==(const SamplingDefaults&) const = default;
};

/// `defaults` with the values that `settings` sets.
inline SamplingDefaults with(SamplingDefaults defaults, const SamplingSettings& settings) {
  defaults.temperature = settings.temperature.value_or(defaults.temperature);
  defaults.top_k = settings.top_k.value_or(defaults.top_k);
  defaults.top_p = settings.top_p.value_or(defaults.top_p);
  defaults.min_p = settings.min_p.value_or(defaults.min_p);
  defaults.repetition_penalty = settings.repetition_penalty.value_or(defaults.repetition_penalty);
  defaults.penalty_window = settings.penalty_window.value_or(defaults.penalty_window);
  return defaults;
}

}  // namespace hearth::ipc
