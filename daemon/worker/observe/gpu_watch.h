#pragma once
// What a GPU's management library says, read once a second on a thread of its own: a driver in
// trouble may keep who asks it for ever, and then neither a step nor the front door waits. What was
// read last grows old, is told no more, and the thread is left behind when the process ends.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "ipc/schema/worker_stats.h"
#include "kernels/base/clock.h"

namespace hearth::worker {

/// nullopt: there is nothing to be said now. May hang.
using ReadGpu = std::function<std::optional<ipc::GpuSnapshot>()>;

class GpuWatch {
 public:
  static constexpr int64_t kEveryUs = 1'000'000;
  static constexpr int64_t kOldUs = 5'000'000;

  /// `clock` outlives this object; a thread that is left behind does not ask it.
  GpuWatch(ReadGpu read, const Clock& clock, int64_t every_us = kEveryUs);
  ~GpuWatch();  // waits for a read under way, but not for one that hangs
  GpuWatch(const GpuWatch&) = delete;
  GpuWatch& operator=(const GpuWatch&) = delete;

  /// Never waits for a read. nullopt: none yet, or none of the last kOldUs.
  std::optional<ipc::GpuSnapshot> latest() const;

 private:
  struct Shared;
  const Clock& clock_;
  std::shared_ptr<Shared> shared_;  ///< the thread's too: it may outlive us
};

}  // namespace hearth::worker
