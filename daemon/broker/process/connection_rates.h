#pragma once
// Bounds the new connections of each user per second. Owned by one thread.

#include <cstdint>
#include <unordered_map>

#include "kernels/base/clock.h"

namespace hearth::broker {

class ConnectionRates {
 public:
  /// New connections of one user: the sustained rate, and the largest burst.
  static constexpr int64_t kPerSecond = 500;
  static constexpr int64_t kAtOnce = 1000;

  explicit ConnectionRates(const Clock& clock) : clock_(clock) {}

  /// Counts one more new connection of the user. False: there are too many, close it unserved.
  bool may_connect(uint32_t uid);

 private:
  const Clock& clock_;
  // By user: the time at which its connections so far are paid for at kPerSecond.
  std::unordered_map<uint32_t, int64_t> paid_us_;
};

}  // namespace hearth::broker
