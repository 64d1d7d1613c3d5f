#pragma once
// The one place where the builds of the worker differ: which device they compute on. Each has its
// own device_<kind>.cpp.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/worker/gpu_watch.h"
#include "daemon/worker/options.h"
#include "kernels/base/result.h"
#include "kernels/ceilings.h"
#include "kernels/ops.h"

namespace hearth::worker {

/// "cpu", "cuda"
std::string_view device_kind();

/// Opens the device. kUnsupported says what is missing, kInvalidArgument what was asked wrongly.
/// Late packing, where the device knows it, is for who serves: the first token comes sooner.
Result<kernels::OpTable> open_device(const DeviceOptions& options,
                                     kernels::Packing packing = kernels::Packing::kAtOnce);

/// What it can do at most, measured now; `read_bytes` several times its last-level cache.
Result<kernels::Ceilings> measure_device(const kernels::OpTable& ops, size_t read_bytes);

/// One fact about the device: what there is, what would be used of it, and why.
struct DeviceCheck {
  std::string_view level;  ///< "ok", "warn" or "fail" (cannot compute here)
  std::string name;
  std::string detail;
};
/// In the order a reader wants them. Opens the device, and gives it back.
std::vector<DeviceCheck> describe_device(const DeviceOptions& options);

/// Weight::bytes that the device's pack_weights would take for these tensors.
uint64_t packed_bytes(std::span<const kernels::HostTensor> tensors, kernels::WeightRole role);

/// Of a device with memory of its own: bytes that weights and engine leave to the driver and to the
/// ops' scratch. There, what does not fit is refused before anything is loaded. nullopt: the device
/// computes in host memory.
std::optional<uint64_t> reserved_bytes();

/// Asks the device's management library for its state: on one thread, which it may hold up for
/// ever. Null: there is nothing to ask.
ReadGpu gpu_reader(const DeviceOptions& options);

}  // namespace hearth::worker
