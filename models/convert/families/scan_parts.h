#pragma once
// What files of layers with a scan and a convolution share.

#include <string>
#include <string_view>

#include "models/convert/tensor_plan.h"

namespace hearth::models {

class ConfigReader;

/// The sizes of a scan, from keys of these names; an empty one is left out.
struct ScanKeys {
  std::string_view taps, state, heads, groups;
};
Result<void> read_scan(ConfigReader& r, const ScanKeys& names, uint64_t inner);

/// A convolution of each channel: channels x 1 x taps.
Result<void> plan_conv(TensorPlanner& p, const std::string& from, const std::string& to,
                       Edit edit = {});

}  // namespace hearth::models
