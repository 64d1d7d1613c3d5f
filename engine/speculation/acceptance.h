#pragma once
// The chance that a draft token is right: a moving average of results that starts at an assumed
// value and leaves it quickly.

#include <algorithm>
#include <cstdint>

namespace hearth::engine {

class Acceptance {
 public:
  /// `slowest`: the least weight of one more trial.
  explicit Acceptance(double belief = 0.5, double slowest = 1.0 / 24)
      : chance_(belief), slowest_(slowest) {}

  void add(bool accepted) {
    trials_ = std::min(trials_ + 1, kMaxTrials);
    const double gain = std::max(slowest_, 1.0 / (kBeliefTrials + trials_));
    chance_ += gain * ((accepted ? 1.0 : 0.0) - chance_);
  }
  double chance() const { return chance_; }

 private:
  static constexpr int32_t kMaxTrials = 1 << 20;
  static constexpr int32_t kBeliefTrials = 4;  ///< what the belief counts as

  double chance_;
  double slowest_;
  int32_t trials_ = 0;
};

}  // namespace hearth::engine
