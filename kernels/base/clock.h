#pragma once
// Time is passed in, so that a test or a simulation controls it.

#include <atomic>
#include <chrono>
#include <cstdint>

namespace hearth {

/// Microseconds since an arbitrary start; monotonic, does not advance during suspend.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual int64_t now_us() const = 0;
};

class SteadyClock final : public Clock {
 public:
  int64_t now_us() const override {
    return std::chrono::duration_cast<std::chrono::microseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
};

/// A clock that moves only when advanced.
class FakeClock final : public Clock {
 public:
  int64_t now_us() const override { return now_us_.load(std::memory_order_relaxed); }
  void advance_us(int64_t us) { now_us_.fetch_add(us, std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> now_us_{0};
};

}  // namespace hearth
