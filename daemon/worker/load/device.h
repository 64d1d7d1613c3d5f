#pragma once
// The one place where the builds of the worker differ: which device they compute on. Each has its
// own device_<kind>.cpp.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/worker/load/options.h"
#include "daemon/worker/observe/gpu_watch.h"
#include "kernels/base/result.h"
#include "kernels/host/ceilings.h"
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

/// What the weights of a device with memory of its own take of it beside their bytes.
class PackingMeter {
 public:
  /// Counts them in; what packed_bytes says of them.
  uint64_t add(std::span<const kernels::HostTensor> tensors, kernels::WeightRole role);
  /// Of all that were counted: pages that are not full, and the ops' scratch.
  uint64_t extra_bytes() const { return rounding_bytes_ + activation_bytes_ + expert_bytes_; }

 private:
  uint64_t rounding_bytes_ = 0;
  uint64_t activation_bytes_ = 0;
  uint64_t expert_bytes_ = 0;
};

/// Of a device with memory of its own: bytes that weights and engine leave to the driver and to
/// captured steps, which cannot be known ahead. There, what does not fit is refused before anything
/// is loaded. nullopt: the device computes in host memory.
std::optional<uint64_t> reserved_bytes();

/// What is left of the memory of such a device; nullopt: it has none of its own.
struct DeviceUse {
  uint64_t free_bytes = 0;  ///< all processes considered
  uint64_t graph_bytes = 0;
  int32_t graphs_refused = 0;
};
std::optional<DeviceUse> device_use(const kernels::OpTable& ops);

/// Asks the device's management library for its state: on one thread, which it may hold up for
/// ever. Null: there is nothing to ask.
ReadGpu gpu_reader(const DeviceOptions& options);

}  // namespace hearth::worker
