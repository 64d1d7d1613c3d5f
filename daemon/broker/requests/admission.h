#pragma once
// The bounds a request must pass before the broker keeps it, and the hint a refused client gets.
// Pure arithmetic; owned by the io thread.

#include <cstddef>
#include <cstdint>

#include "daemon/broker/config/config.h"
#include "kernels/base/result.h"

namespace hearth::broker {

/// What the broker holds at the moment a request arrives.
struct Load {
  size_t live = 0;           ///< requests of everybody
  size_t owner_live = 0;     ///< of the one who asks
  size_t queued_bytes = 0;   ///< of everybody's messages
  size_t owner_bytes = 0;    ///< of the messages of the one who asks
  int64_t owner_tokens = 0;  ///< that this one's live requests may make at most
};

/// What one request would add.
struct Demand {
  size_t bytes = 0;    ///< of its message
  int64_t tokens = 0;  ///< n times max_tokens
};

class Admission {
 public:
  explicit Admission(const LimitsConfig& limits) : limits_(limits) {}

  /// kUnavailable while draining, kTooLarge over max_message_bytes, kBusy over the other bounds;
  /// each names the bound and the number met.
  Result<void> admit(const Load& load, const Demand& demand) const;
  /// For requests that come from now on.
  void set_limits(const LimitsConfig& limits) { limits_ = limits; }

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
