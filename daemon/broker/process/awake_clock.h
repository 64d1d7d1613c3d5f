#pragma once
// A clock that stands still while the process does not run. A suspend does not count, because the
// steady clock stops. A paused machine or a stopped process shows as a jump between two readings;
// the clock skips the jump, so that nothing expires because of it. Owned by the io thread, which
// reads it a few times a second.

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
  // Far longer than the io thread ever blocks, far shorter than any timeout.
  static constexpr int64_t kJumpUs = 5'000'000;

  const Clock& clock_;
  mutable int64_t last_us_;
  mutable int64_t asleep_us_ = 0;
};

}  // namespace hearth::broker
