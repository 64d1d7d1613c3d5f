#pragma once
// The bounds a request must pass before the broker keeps it, and the retry hint for a refused
// client. Pure arithmetic; owned by the io thread.

#include <cstddef>
#include <cstdint>

#include "daemon/broker/config/config.h"
#include "kernels/base/result.h"

namespace hearth::broker {

/// The broker's load when a request arrives.
struct Load {
  size_t live = 0;           ///< requests of all users
  size_t owner_live = 0;     ///< requests of the caller
  size_t queued_bytes = 0;   ///< message bytes of all users
  size_t owner_bytes = 0;    ///< message bytes of the caller
  int64_t owner_tokens = 0;  ///< output tokens that the caller's live requests may still generate
};

/// The load that one request would add.
struct Demand {
  size_t bytes = 0;    ///< of its message
  int64_t tokens = 0;  ///< n times max_tokens
};

class Admission {
 public:
  explicit Admission(const LimitsConfig& limits) : limits_(limits) {}

  /// kUnavailable while draining, kTooLarge over max_message_bytes, kBusy over the other bounds;
  /// each names the bound and the number met. `own`: the caller's limits, where they differ.
  Result<void> admit(const Load& load, const Demand& demand,
                     const OwnerConfig* own = nullptr) const;
  /// Replaces the limits, for requests that arrive later.
  void set_limits(const LimitsConfig& limits) { limits_ = limits; }

  /// Records how long a request lived: the base of retry_ms.
  void note_duration_ms(double ms);

  /// When a refused client should retry: about when one of the `live` requests will have ended.
  int64_t retry_ms(size_t live) const;

  void stop_admitting() { draining_ = true; }
  bool draining() const { return draining_; }

 private:
  LimitsConfig limits_;
  double mean_duration_ms_ = 1000.0;  // moving mean over about the last 16
  bool draining_ = false;
};

}  // namespace hearth::broker
