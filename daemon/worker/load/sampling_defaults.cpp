#include "daemon/worker/load/sampling_defaults.h"

#include <cmath>
#include <string_view>

#include "kernels/base/log.h"

namespace hearth::worker {
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
      value = *number;
    }
    if (!ipc::set_sampling(each.name, value, &out)) {
      log_warn("sampling_key", "key={} why=\"no value that a request could have\"", each.key);
    }
  }
  return out;
}

ipc::SamplingDefaults sampling_defaults(const models::GgufFile& file,
                                        const ipc::SamplingSettings& configured,
                                        const models::CanvasModel& canvas) {
  ipc::SamplingDefaults usual;
  if (canvas.mask_token >= 0) {
    usual.temperature = canvas.temperature;
    usual.top_p = canvas.top_p;
    usual.top_k = 0;
  }
  return with(with(usual, configured), sampling_of_file(file));
}

}  // namespace hearth::worker
