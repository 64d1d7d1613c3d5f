#pragma once
// The one place where the builds of the worker differ: which device they compute on. Each has its
// own device_<kind>.cpp.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/worker/options.h"
#include "kernels/base/result.h"
#include "kernels/ops.h"

namespace hearth::worker {

/// "cpu", "cuda"
std::string_view device_kind();

/// Opens the device. kUnsupported says what is missing, kInvalidArgument what was asked wrongly.
Result<kernels::OpTable> open_device(const DeviceOptions& options);

/// Facts in the order a reader wants them: name, value with its unit.
struct DeviceReport {
  bool usable = true;
  std::vector<std::pair<std::string, std::string>> facts;
};
/// What the device offers, what would be used of it, and why. Opens it, and gives it back.
DeviceReport describe_device(const DeviceOptions& options);

}  // namespace hearth::worker
