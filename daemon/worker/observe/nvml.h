#pragma once
// A GPU's state from NVIDIA's management library, if it is installed: opened at run time, never
// linked. Source: NVML API reference, device queries.

#include <memory>
#include <string>

#include "ipc/schema/worker_stats.h"
#include "kernels/base/result.h"

namespace hearth::worker {

/// One GPU, as the library reports it. One thread at a time. A call takes as long as the driver
/// does; if the driver fails, that may be forever.
class Nvml {
 public:
  /// `pci_bus_id` as CUDA reports it, "0000:65:00.0". kUnavailable gives the reason.
  static Result<Nvml> open(const std::string& pci_bus_id);
  ipc::GpuSnapshot read() const;

 private:
  struct Closer {
    void operator()(void* library) const;  // shuts the library down and closes it
  };
  using Library = std::unique_ptr<void, Closer>;
  using Device = struct NvmlDevice*;  // opaque

  Nvml(Library library, Device device) : library_(std::move(library)), device_(device) {}

  Library library_;
  Device device_ = nullptr;
};

/// The GPU's state without its name, in the format of ipc::gpu_text, or the reason it is
/// unavailable.
std::string gpu_condition(const std::string& pci_bus_id);

}  // namespace hearth::worker
