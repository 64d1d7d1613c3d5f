#pragma once
// Passes over one row of logits, a vocabulary wide: 128,000 values in tens of microseconds. Plain
// loops without a branch per value, which compilers turn into vectors of whatever the build allows.

#include <cstddef>
#include <cstdint>
#include <span>

namespace hearth::engine {

/// Values looked at together: where their largest does not matter, none of them does.
inline constexpr size_t kLogitRun = 256;

/// Index of the first value that is not finite, or logits.size().
size_t first_not_finite(std::span<const float> logits);

/// The largest of them, and none is NaN. -infinity of none.
float largest(std::span<const float> logits);

/// Index of the largest, the first of equals. `logits` is not empty.
size_t argmax(std::span<const float> logits);

/// e^x within 4 units in the last place, for x <= 0; below -708 it stays at e^-708.
double exp_negative(double x);

/// out[i] = exp_negative((logits[i] - max) * inverse_temperature), for max >= every logit.
void weights(std::span<const float> logits, float max, double inverse_temperature, double* out);

/// The sum of those weights, in one order whatever the build.
double sum_weights(std::span<const float> logits, float max, double inverse_temperature);

}  // namespace hearth::engine
