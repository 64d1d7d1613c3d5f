#include "daemon/worker/load/sampling_defaults.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>

#include "ipc/schema/field_table.h"
#include "kernels/base/log.h"

namespace hearth::worker {
namespace {

/// Whether a generate request may have this value in that field.
bool in_range(std::string_view name, double value) {
  const ipc::Field* field = ipc::find_field(ipc::Verb::kGenerate, name);
  if (field == nullptr || !(value >= field->min && value <= field->max)) return false;
  return field->type != ipc::FieldType::kInteger || value == std::floor(value);
}

bool set(ipc::SamplingSettings* settings, std::string_view name, double value) {
  if (!in_range(name, value)) return false;
  if (name == "temperature") settings->temperature = static_cast<float>(value);
  if (name == "top_k") settings->top_k = static_cast<int32_t>(value);
  if (name == "top_p") settings->top_p = static_cast<float>(value);
  if (name == "min_p") settings->min_p = static_cast<float>(value);
  if (name == "repetition_penalty") settings->repetition_penalty = static_cast<float>(value);
  if (name == "penalty_window") settings->penalty_window = static_cast<int32_t>(value);
  return true;
}

constexpr std::string_view kNames[] = {"temperature",        "top_k",         "top_p", "min_p",
                                       "repetition_penalty", "penalty_window"};

}  // namespace

ipc::SamplingSettings sampling_of_file(const models::GgufFile& file) {
  struct Key {
    const char* key;
    std::string_view name;
    bool integer;
  };
  constexpr Key kKeys[] = {{"general.sampling.temp", "temperature", false},
                           {"general.sampling.top_k", "top_k", true},
                           {"general.sampling.top_p", "top_p", false},
                           {"general.sampling.min_p", "min_p", false},
                           {"general.sampling.penalty_repeat", "repetition_penalty", false},
                           {"general.sampling.penalty_last_n", "penalty_window", true}};
  ipc::SamplingSettings out;
  for (const Key& each : kKeys) {
    if (!file.has(each.key)) continue;
    double value = std::nan("");
    if (const auto integer = file.get<int32_t>(each.key); integer.ok()) {
      value = *integer;
    } else if (const auto number = file.get<float>(each.key); number.ok() && !each.integer) {
      value = static_cast<double>(*number);
    }
    if (!set(&out, each.name, value)) {
      log_warn("sampling_key", "key={} why=\"no value that a request could have\"", each.key);
    }
  }
  return out;
}

Result<ipc::SamplingSettings> parse_sampling(std::string_view text) {
  ipc::SamplingSettings out;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const size_t equals = std::min(word.find('='), word.size());
    const std::string_view name = word.substr(0, equals);
    const std::string_view number = word.substr(std::min(equals + 1, word.size()));
    double value = 0;
    const auto [stop, error] = std::from_chars(number.data(), number.data() + number.size(), value);
    const bool known = std::ranges::find(kNames, name) != std::end(kNames);
    if (!known || error != std::errc{} || stop != number.data() + number.size() ||
        !set(&out, name, value)) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("--sampling: met {}, want {}=NUMBER in the range of that field",
                               word, fmt::join(kNames, "=NUMBER, ")),
                   "sampling"};
    }
  }
  return out;
}

ipc::SamplingDefaults sampling_defaults(const models::GgufFile& file,
                                        const ipc::SamplingSettings& configured) {
  return with(with({}, configured), sampling_of_file(file));
}

}  // namespace hearth::worker
