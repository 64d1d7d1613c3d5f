#pragma once
// The output of `hearth plan --json` for a model, as lines for people. Plain data.

#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/result.h"

namespace hearth::monitor {

struct PlanReport {
  std::string model;
  bool fits = false;
  std::vector<std::pair<std::string, std::string>> lines;  ///< label, value with its unit
  double read_bytes_per_s = 0;  ///< of the device, as measured for the plan; 0: not reported
  double ops_per_s = 0;
};

/// kProtocol if `text` is not a plan.
Result<PlanReport> parse_plan(std::string_view text);

}  // namespace hearth::monitor
