#pragma once
// The bounds a request must pass before the broker keeps it, and the hint a refused client gets.
// Pure arithmetic; owned by the io thread.

#include <cstddef>
#include <cstdint>

#include "daemon/broker/config.h"
#include "kernels/base/result.h"

namespace hearth::broker {

/// What the broker holds at the moment a request arrives.
struct Load {
  size_t live = 0;          ///< requests of everybody
  size_t owner_live = 0;    ///< of the one who asks
  size_t queued_bytes = 0;  ///< of everybody's messages
};

class Admission {
 public:
  explicit Admission(const LimitsConfig& limits) : limits_(limits) {}

  /// kUnavailable while draining, kTooLarge over max_message_bytes, kBusy over the other bounds;
  /// each names the bound and the number met.
  Result<void> admit(const Load& load, size_t message_bytes) const;

  /// A request lived so long: the base of retry_ms.
  void note_duration_ms(double ms);

  /// When a refused client should try again: about when one of `live` requests will have ended.
  int64_t retry_ms(size_t live) const;

  void stop_admitting() { draining_ = true; }
  bool draining() const { return draining_; }

 private:
  LimitsConfig limits_;
  double mean_duration_ms_ = 1000.0;  // moving mean over about the last 16
  bool draining_ = false;
};

}  // namespace hearth::broker
