#pragma once
// A clock that stands still while nobody runs us. Suspend does not count by itself (the steady
// clock stops); a machine that was paused, or a daemon that was stopped, looks like a jump between
// two readings, and the jump is left out: nothing expires because of it. Owned by the io thread,
// which reads it a few times a second.

#include "kernels/base/clock.h"

namespace hearth::broker {

class AwakeClock final : public Clock {
 public:
  explicit AwakeClock(const Clock& clock) : clock_(clock), last_us_(clock.now_us()) {}

  int64_t now_us() const override {
    const int64_t raw_us = clock_.now_us();
    if (raw_us - last_us_ > kJumpUs) asleep_us_ += raw_us - last_us_;
    last_us_ = raw_us;
    return raw_us - asleep_us_;
  }

 private:
  // Far more than the io thread is ever away, far less than any timeout of ours.
  static constexpr int64_t kJumpUs = 5'000'000;

  const Clock& clock_;
  mutable int64_t last_us_;
  mutable int64_t asleep_us_ = 0;
};

}  // namespace hearth::broker
