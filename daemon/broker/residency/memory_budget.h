#pragma once
// Decides whether another model fits into memory next to the resident ones. Pure arithmetic except
// for available_memory_bytes().

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "kernels/base/clock.h"

namespace hearth::broker {

/// The memory available for a new model.
class MemoryBudget {
 public:
  using Available = std::function<uint64_t()>;
  using Pressed = std::function<bool()>;

  /// `budget_bytes`: for all models together. 0: the free memory that `available` reports when a
  /// model is to be loaded (0: unknown, so everything fits), or the memory found on a device.
  /// `pressed`: the system is short of memory; null: never.
  MemoryBudget(uint64_t budget_bytes, Available available, Pressed pressed = nullptr)
      : budget_bytes_(budget_bytes),
        available_(std::move(available)),
        pressed_(std::move(pressed)) {}

  struct InUse {
    uint64_t bytes = 0;          ///< taken by or reserved for the other models
    uint64_t to_come_bytes = 0;  ///< of these, reserved but not yet taken by models that still load
  };
  bool fits(uint64_t bytes, const InUse& in_use) const { return bytes <= room(in_use); }
  /// Bytes left; UINT64_MAX: unknown, so everything fits.
  uint64_t room(const InUse& in_use) const;
  /// The models run on a device with its own memory: a worker found `free_bytes` free there, next
  /// to what `others` have taken. From now on free host memory does not matter.
  void found_device(uint64_t free_bytes, const InUse& others);
  /// It can never fit, even alone.
  bool hopeless(uint64_t bytes) const { return budget_bytes_ > 0 && bytes > budget_bytes_; }
  uint64_t budget_bytes() const { return budget_bytes_; }
  bool pressed() const { return pressed_ != nullptr && pressed_(); }

 private:
  uint64_t budget_bytes_;
  uint64_t device_bytes_ = 0;  ///< for all models together; 0: they use host memory
  Available available_;
  Pressed pressed_;
};

/// Host memory for the prefixes of one more worker whose device has its own memory: the configured
/// size, or half of the free memory that is not promised to other workers. `available` 0: unknown.
uint64_t prefix_ram_share(uint64_t configured, uint64_t available, uint64_t promised);

/// Whether the system is short of memory: processes that wait for it stall for more than
/// kPressedPercent of the time, on the machine or in our control group.
bool memory_is_pressed();
inline constexpr double kPressedPercent = 10;

/// The share of the last 10 s in which some process stalled, in percent, from the text of
/// /proc/pressure/memory; 0: not found.
double parse_pressure(std::string_view text);

/// Memory that a process may still take: the kernel's MemAvailable, or the room in our control
/// group if that is less. 0: unknown.
uint64_t available_memory_bytes();

/// Both, read from the system a few times a second at most.
class MemoryWatch {
 public:
  explicit MemoryWatch(const Clock& clock) : clock_(clock) {}
  uint64_t available_bytes();
  bool pressed();

 private:
  void read();

  const Clock& clock_;
  int64_t next_us_ = 0;
  uint64_t available_bytes_ = 0;
  bool pressed_ = false;
};

/// The path of our control group from the text of /proc/self/cgroup: of a version 1 controller, or
/// with "" that of version 2; "": there is none.
std::string group_path(std::string_view groups, std::string_view controller);

/// MemAvailable from the text of /proc/meminfo, in bytes; 0: not found.
uint64_t parse_available(std::string_view meminfo);

}  // namespace hearth::broker
