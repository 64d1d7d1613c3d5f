#pragma once
// Rates of recent events, in which newer events count more.

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/base/numbers.h"

namespace hearth::engine {

/// Events per second of busy time. Both sums decay with busy time, by 1/e in two seconds.
class RecentRate {
 public:
  void add(double count, int64_t busy_us) {
    const double seconds = as_double(busy_us) * 1e-6;
    const double fade = std::exp(-seconds / 2.0);
    count_ = count_ * fade + count;
    seconds_ = seconds_ * fade + seconds;
  }
  double per_second() const { return seconds_ > 0 ? count_ / seconds_ : 0; }

 private:
  double count_ = 0;
  double seconds_ = 0;
};

/// Events per second of wall time. The count decays by 1/e in two seconds, so the rate falls to
/// zero once events stop. In the first half second it is what half a second would show if no more
/// came.
class RecentThroughput {
 public:
  void add(double count, int64_t begin_us, int64_t end_us) {
    if (count_ <= 0) since_us_ = begin_us;
    count_ = faded(end_us) + count;
    last_us_ = end_us;
  }
  double per_second(int64_t now_us) const {
    if (count_ <= 0) return 0;
    const double elapsed = seconds_between(since_us_, now_us);
    const double seen = kFade * (1 - std::exp(-elapsed / kFade));
    const double rate = faded(now_us) / std::max(seen, kLeast);
    return rate < kNothing ? 0 : rate;
  }

 private:
  static constexpr double kFade = 2.0;
  static constexpr double kLeast = 0.5;
  static constexpr double kNothing = 0.05;
  static double seconds_between(int64_t from_us, int64_t to_us) {
    return std::max(0.0, as_double(to_us - from_us) * 1e-6);
  }
  double faded(int64_t now_us) const {
    return count_ * std::exp(-seconds_between(last_us_, now_us) / kFade);
  }

  double count_ = 0;
  int64_t since_us_ = 0;
  int64_t last_us_ = 0;
};

}  // namespace hearth::engine
