#include "models/quantize/fit_block.h"

#include <algorithm>
#include <cmath>

namespace hearth::models {
namespace {

constexpr int kSteps = 12;      // on either side of the initial scale
constexpr float kStep = 0.02f;  // relative size of one step
constexpr int kRounds = 3;      // each chooses codes, then scale and min for them

uint8_t affine_code(float value, float inverse_scale, float min, float max_code) {
  const float code = std::clamp((value - min) * inverse_scale, 0.0f, max_code);
  return static_cast<uint8_t>(round_even(code));
}

}  // namespace

float fit_scale(std::span<const float> values, std::span<const double> weights,
                const Levels& levels) {
  float largest = 0;
  for (const float x : values) {
    if (std::abs(x) > std::abs(largest)) largest = x;
  }
  // Below this, one over the scale may overflow, and a stored half could not hold the scale.
  if (std::abs(largest) < 1e-20f) return 0;
  double best_gain = 0;  // the squared error that a scale removes
  double best = 0;
  for (const float end : {levels.first(), levels.last()}) {
    for (int step = -kSteps; step <= kSteps; ++step) {
      const float scale = largest / end * (1 + kStep * static_cast<float>(step));
      const float inverse = 1 / scale;
      double with_x = 0;
      double with_itself = 0;
      for (size_t i = 0; i < values.size(); ++i) {
        const double level = levels[levels.nearest(values[i] * inverse)];
        with_x += weights[i] * values[i] * level;
        with_itself += weights[i] * level * level;
      }
      if (with_itself <= 0) continue;
      const double gain = with_x * with_x / with_itself;
      if (gain > best_gain) {
        best_gain = gain;
        best = with_x / with_itself;
      }
    }
  }
  return static_cast<float>(best);
}

ScaleAndMin fit_scale_and_min(std::span<const float> values, std::span<const double> weights,
                              float max_code, bool negative_min) {
  const auto [low_at, high_at] = std::minmax_element(values.begin(), values.end());
  const float low = negative_min ? std::min(*low_at, 0.0f) : *low_at;
  const float high = *high_at;
  ScaleAndMin best{0, low};
  double best_error = 1e300;
  for (int step = -kSteps; step <= kSteps; ++step) {
    ScaleAndMin fit{(high - low) / max_code * (1 + kStep * static_cast<float>(step)), low};
    for (int round = 0; round < kRounds && fit.scale > 1e-20f; ++round) {
      const float inverse = 1 / fit.scale;
      double w = 0, wq = 0, wqq = 0, wx = 0, wxq = 0, error = 0;
      for (size_t i = 0; i < values.size(); ++i) {
        const double q = affine_code(values[i], inverse, fit.min, max_code);
        const double miss = fit.scale * q + fit.min - values[i];
        error += weights[i] * miss * miss;
        w += weights[i];
        wq += weights[i] * q;
        wqq += weights[i] * q * q;
        wx += weights[i] * values[i];
        wxq += weights[i] * values[i] * q;
      }
      if (error < best_error) {
        best_error = error;
        best = fit;
      }
      const double determinant = w * wqq - wq * wq;
      if (!(determinant > 0)) break;
      double scale = (w * wxq - wq * wx) / determinant;
      double min = (wqq * wx - wq * wxq) / determinant;
      if (negative_min && min > 0) {
        min = 0;
        scale = wxq / wqq;
      }
      fit = {static_cast<float>(scale), static_cast<float>(min)};
    }
  }
  return best;
}

}  // namespace hearth::models
