#pragma once
// The one place where the builds of the worker differ: which device they compute on. Each has its
// own device_<kind>.cpp.

#include <string>
#include <string_view>
#include <vector>

#include "daemon/worker/options.h"
#include "kernels/base/result.h"
#include "kernels/ops.h"

namespace hearth::worker {

/// "cpu", "cuda"
std::string_view device_kind();

/// Opens the device. kUnsupported says what is missing, kInvalidArgument what was asked wrongly.
Result<kernels::OpTable> open_device(const DeviceOptions& options);

/// One fact about the device: what there is, what would be used of it, and why.
struct DeviceCheck {
  std::string_view level;  ///< "ok", "warn" or "fail" (cannot compute here)
  std::string name;
  std::string detail;
};
/// In the order a reader wants them. Opens the device, and gives it back.
std::vector<DeviceCheck> describe_device(const DeviceOptions& options);

}  // namespace hearth::worker
