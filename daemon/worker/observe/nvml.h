#pragma once
// What NVIDIA's management library says of a GPU, where its library is installed: opened at run
// time, never linked. Source: NVML API reference, device queries.

#include <memory>
#include <string>

#include "ipc/schema/worker_stats.h"
#include "kernels/base/result.h"

namespace hearth::worker {

/// One GPU, as the library knows it. One thread at a time; a call takes as long as the driver does,
/// and of a driver that is in trouble that may be for ever.
class Nvml {
 public:
  /// `pci_bus_id` as CUDA gives it, "0000:65:00.0". kUnavailable says why there is nothing to ask.
  static Result<Nvml> open(const std::string& pci_bus_id);
  ipc::GpuSnapshot read() const;

 private:
  struct Closer {
    void operator()(void* library) const;  // shuts it down, and closes it
  };
  using Library = std::unique_ptr<void, Closer>;
  using Device = struct NvmlDevice*;  // opaque

  Nvml(Library library, Device device) : library_(std::move(library)), device_(device) {}

  Library library_;
  Device device_ = nullptr;
};

/// All that is known of it but its name, as ipc::gpu_text has it; or why that is nothing.
std::string gpu_condition(const std::string& pci_bus_id);

}  // namespace hearth::worker
