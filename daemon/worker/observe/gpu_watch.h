#pragma once
// Reads a GPU's management library once a second, on a separate thread: calls into a failing driver
// may block forever, and neither a step nor the front door may wait for them. A reading that
// becomes too old is not reported, and a blocked thread is abandoned when the process ends.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "ipc/schema/worker_stats.h"
#include "kernels/base/clock.h"

namespace hearth::worker {

/// nullopt: no reading is available now. May block forever.
using ReadGpu = std::function<std::optional<ipc::GpuSnapshot>()>;

class GpuWatch {
 public:
  static constexpr int64_t kEveryUs = 1'000'000;
  static constexpr int64_t kOldUs = 5'000'000;

  /// `clock` outlives this object; an abandoned thread does not use it.
  GpuWatch(ReadGpu read, const Clock& clock, int64_t every_us = kEveryUs);
  ~GpuWatch();  // waits for a read in progress, but not for one that hangs
  GpuWatch(const GpuWatch&) = delete;
  GpuWatch& operator=(const GpuWatch&) = delete;

  /// Never waits for a read. nullopt: none succeeded yet, or within the last kOldUs.
  std::optional<ipc::GpuSnapshot> latest() const;

 private:
  struct Shared;
  const Clock& clock_;
  std::shared_ptr<Shared> shared_;  ///< shared with the thread, which may outlive us
};

}  // namespace hearth::worker
