#pragma once
// Events per second of busy time, recent ones counting more: both sums fade with the busy time that
// passes, by 1/e in two seconds.

#include <cmath>
#include <cstdint>

namespace hearth::engine {

class RecentRate {
 public:
  void add(double count, int64_t busy_us) {
    const double seconds = static_cast<double>(busy_us) * 1e-6;
    const double fade = std::exp(-seconds / 2.0);
    count_ = count_ * fade + count;
    seconds_ = seconds_ * fade + seconds;
  }
  double per_second() const { return seconds_ > 0 ? count_ / seconds_ : 0; }

 private:
  double count_ = 0;
  double seconds_ = 0;
};

}  // namespace hearth::engine
