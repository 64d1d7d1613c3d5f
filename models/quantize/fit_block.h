#pragma once
// Fitting of scales: which scale (and minimum) lets a few values be told best by small integer
// codes. Errors are weighted by the values' squares, since large weights move a sum most.

#include <cstdint>
#include <span>

namespace hearth::models {

/// The integers that codes stand for, ascending: level of code c is levels[c].
using Levels = std::span<const int8_t>;

/// The code whose level is nearest to `value`.
uint8_t nearest_code(Levels levels, float value);

/// scale * level for each value: the scale, of either sign, of least error among a search around
/// the one that brings the largest value to the last level. 0 for values that are all zero.
float fit_scale(std::span<const float> values, Levels levels);

struct ScaleAndMin {
  float scale = 0;  ///< >= 0
  float min = 0;
};
/// scale * code + min, codes 0 .. max_code. `negative_min`: min is at most 0.
ScaleAndMin fit_scale_and_min(std::span<const float> values, int max_code, bool negative_min);

}  // namespace hearth::models
