#pragma once
// The only functions that differ between the builds of the worker: those of the device. Each device
// has its own device_<kind>.cpp.

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

/// Opens the device. kUnsupported names what is missing, kInvalidArgument the wrong option. Serving
/// uses late packing if the device supports it, so that the first token comes sooner.
Result<kernels::OpTable> open_device(const DeviceOptions& options,
                                     kernels::Packing packing = kernels::Packing::kAtOnce);

/// Measures the device's ceilings now; `read_bytes` should be several times its last-level cache.
Result<kernels::Ceilings> measure_device(const kernels::OpTable& ops, size_t read_bytes);

/// One fact about the device: what it offers, what hearth would use, and why.
struct DeviceCheck {
  std::string_view level;  ///< "ok", "warn" or "fail" (cannot compute here)
  std::string name;
  std::string detail;
};
/// In reading order. Opens the device and closes it again.
std::vector<DeviceCheck> describe_device(const DeviceOptions& options);

/// Weight::bytes that the device's pack_weights would take for these tensors.
uint64_t packed_bytes(std::span<const kernels::HostTensor> tensors, kernels::WeightRole role);

/// Adds up the device memory that weights take in addition to their bytes, on a device with its own
/// memory.
class PackingMeter {
 public:
  /// Adds these tensors; returns their packed_bytes.
  uint64_t add(std::span<const kernels::HostTensor> tensors, kernels::WeightRole role);
  /// Of all tensors added: partly filled pages, and the ops' scratch.
  uint64_t extra_bytes() const { return rounding_bytes_ + activation_bytes_ + expert_bytes_; }

 private:
  uint64_t rounding_bytes_ = 0;
  uint64_t activation_bytes_ = 0;
  uint64_t expert_bytes_ = 0;
};

/// For a device with its own memory: bytes that weights and engine leave to the driver and to
/// captured steps, whose sizes are not known in advance. On such a device, a model that does not
/// fit is refused before it is loaded. nullopt: the device computes in host memory.
std::optional<uint64_t> reserved_bytes();

/// Memory state of such a device; nullopt: it has no memory of its own.
struct DeviceUse {
  uint64_t free_bytes = 0;  ///< after the use by all processes
  uint64_t graph_bytes = 0;
  int32_t graphs_refused = 0;
};
std::optional<DeviceUse> device_use(const kernels::OpTable& ops);

/// Queries the device's management library for its state, on one thread only; the call may block
/// forever. Null: there is nothing to query.
ReadGpu gpu_reader(const DeviceOptions& options);

}  // namespace hearth::worker
