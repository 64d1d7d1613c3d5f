#pragma once
// Decides whether another model fits into memory next to the resident ones. Pure arithmetic.

#include <cstdint>
#include <functional>
#include <utility>

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

  /// Of a part of the machine with a budget of its own.
  MemoryBudget with(uint64_t budget_bytes) const {
    return MemoryBudget(budget_bytes, available_, pressed_);
  }

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

}  // namespace hearth::broker
