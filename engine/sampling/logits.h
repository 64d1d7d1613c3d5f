#pragma once
// Passes over one row of logits, as long as the vocabulary: 128,000 values in tens of microseconds.
// Plain loops without a branch per value, which the compiler vectorizes.

#include <cstddef>
#include <cstdint>
#include <span>

namespace hearth::engine {

/// Values that are examined together: if their largest does not matter, none of them does.
inline constexpr size_t kLogitRun = 256;

/// Index of the first value that is not finite, or logits.size().
size_t first_not_finite(std::span<const float> logits);

/// The largest of them, none of which is NaN. -infinity for an empty row.
float largest(std::span<const float> logits);

/// maxima[j] = the largest of logits[j], logits[j + n], logits[j + 2 n], ... for n maxima, at most
/// as many as logits. None of the logits is NaN.
void column_maxima(std::span<const float> logits, std::span<float> maxima);

/// Index of the largest, the first of equals. `logits` is not empty.
int32_t argmax(std::span<const float> logits);

/// e^x within 4 units in the last place, for x <= 0; below -708 it stays at e^-708.
double exp_negative(double x);

/// steps[i] = (max - logits[i]) * steps_per_logit, rounded down and at most `most`, for max >=
/// every logit: never more for a larger logit.
void steps_down(std::span<const float> logits, float max, float steps_per_logit, int32_t most,
                int32_t* steps);

/// out[i] = e^((logits[i] - max) / temperature) to some 1e-6 of it, for max >= every logit; e^-87
/// and less is e^-87.
void rough_weights(std::span<const float> logits, float max, float inverse_temperature, float* out);

struct RoughMass {
  double all = 0;
  double before = 0;  ///< of values larger than the given one, or equal and before it
};
/// Sums of rough_weights to some 1e-5 of `all`, for the value at `at`.
RoughMass rough_mass(std::span<const float> logits, float max, float inverse_temperature,
                     size_t at);

/// The sum of exp_negative((logits[i] - max) * inverse_temperature), in the same order in every
/// build.
double sum_weights(std::span<const float> logits, float max, double inverse_temperature);
/// The same of exp_negative(x) * x.
double sum_weighted(std::span<const float> logits, float max, double inverse_temperature);

}  // namespace hearth::engine
