#pragma once
// Whether another model fits into memory beside those that are there. Pure arithmetic but for
// available_memory_bytes().

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace hearth::broker {

/// The memory that a new model may come to.
class MemoryBudget {
 public:
  using Available = std::function<uint64_t()>;

  /// `budget_bytes`: for all models together; 0: what `available` says is free when one is to be
  /// loaded (0: not known, then everything fits), or what a device was found to have.
  MemoryBudget(uint64_t budget_bytes, Available available)
      : budget_bytes_(budget_bytes), available_(std::move(available)) {}

  struct InUse {
    uint64_t bytes = 0;          ///< taken or promised by the models there are
    uint64_t to_come_bytes = 0;  ///< of them, not taken yet: they still load
  };
  bool fits(uint64_t bytes, const InUse& in_use) const;
  /// The models are on a device with memory of its own: a worker found so many bytes free, of what
  /// the others have not taken. What the host has free does not matter any more.
  void found_device(uint64_t free_bytes, const InUse& others);
  /// It never fits, even alone.
  bool hopeless(uint64_t bytes) const { return budget_bytes_ > 0 && bytes > budget_bytes_; }
  uint64_t budget_bytes() const { return budget_bytes_; }

 private:
  uint64_t budget_bytes_;
  uint64_t device_bytes_ = 0;  ///< for all models together; 0: their memory is the host's
  Available available_;
};

/// Of the host's memory, for the prefixes of one more worker on a device with memory of its own: as
/// configured, or half of what is free beyond what others were promised and have not taken yet.
/// `available` 0: not known.
uint64_t prefix_ram_share(uint64_t configured, uint64_t available, uint64_t promised);

/// What a process may still take: the kernel's MemAvailable, or the room in our control group where
/// that is less. 0: not known.
uint64_t available_memory_bytes();

/// The path of our control group in /proc/self/cgroup's text: of a controller of version 1, or with
/// "" that of version 2; "": there is none.
std::string group_path(std::string_view groups, std::string_view controller);

/// MemAvailable of the text of /proc/meminfo in bytes; 0: not there.
uint64_t parse_available(std::string_view meminfo);

}  // namespace hearth::broker
