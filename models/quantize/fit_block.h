#pragma once
// Fits scales: finds the scale (and minimum) with which small integer codes represent a few values
// best: with the least sum of squared errors, each times the weight of its value. Weights are
// finite and at least 0, as many as values.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace hearth::models {

/// The integers that codes stand for, ascending: level of code c is levels[c].
class Levels {
 public:
  constexpr explicit Levels(std::span<const int8_t> levels) : levels_(levels) {
    // The midpoint of two integers is a multiple of one half, so the code is constant between
    // adjacent multiples.
    size_t code = 0;
    for (int i = 0; i < kSteps; ++i) {
      while (code + 1 < levels.size() && i - kZero >= levels[code] + levels[code + 1]) ++code;
      nearest_[i] = static_cast<uint8_t>(code);
    }
  }

  /// The code whose level is nearest to `value`, which is not NaN.
  uint8_t nearest(float value) const {
    const float at = std::min(std::max(2 * value + kZero, 0.0f), float{kSteps - 1});
    return nearest_[static_cast<size_t>(at)];
  }
  float operator[](uint8_t code) const { return levels_[code]; }
  float first() const { return levels_.front(); }
  float last() const { return levels_.back(); }

 private:
  static constexpr int kSteps = 512;
  static constexpr int kZero = 256;
  std::span<const int8_t> levels_;
  std::array<uint8_t, kSteps> nearest_{};
};

/// Rounds to an integer, half to even; |value| below 2^22. Without SSE4.1, nearbyint is a call.
inline float round_even(float value) { return value + 12582912.0f - 12582912.0f; }

/// scale * level for each value: the scale, of either sign, with the least error, found by a search
/// around the one that maps the largest value to the last level. 0 if all values are zero, or have
/// weight zero.
float fit_scale(std::span<const float> values, std::span<const double> weights,
                const Levels& levels);

struct ScaleAndMin {
  float scale = 0;  ///< >= 0
  float min = 0;
};
/// Represents values as scale * code + min, codes 0 .. max_code. `negative_min`: min is at most 0.
ScaleAndMin fit_scale_and_min(std::span<const float> values, std::span<const double> weights,
                              float max_code, bool negative_min);

}  // namespace hearth::models
