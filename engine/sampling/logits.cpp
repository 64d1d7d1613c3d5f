#include "engine/sampling/logits.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/base/numbers.h"

namespace hearth::engine {
namespace {

constexpr size_t kLanes =
    8;  // independent chains, so that a loop can be vectors without reordering

// Compiled for each width of vectors; the results are the same. Not in sanitized builds: it is
// chosen before main() and before their run-time is ready.
#if defined(__x86_64__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define HEARTH_EACH_WIDTH __attribute__((target_clones("avx2", "default")))
#else
#define HEARTH_EACH_WIDTH
#endif

inline double exp_of(double x) {
  constexpr double kShift = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to an integer
  const double held = x > -708.0 ? x : -708.0;
  const double shifted = held * 1.4426950408889634 + kShift;
  const double n = shifted - kShift;
  // ln 2 in two parts, the first exact times n; |r| <= ln 2 / 2.
  const double r = (held - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;
  // Taylor's series up to r^12: the next term is below 2e-16.
  double p = 1.0 / 479001600;
  p = p * r + 1.0 / 39916800;
  p = p * r + 1.0 / 3628800;
  p = p * r + 1.0 / 362880;
  p = p * r + 1.0 / 40320;
  p = p * r + 1.0 / 5040;
  p = p * r + 1.0 / 720;
  p = p * r + 1.0 / 120;
  p = p * r + 1.0 / 24;
  p = p * r + 1.0 / 6;
  p = p * r + 0.5;
  p = p * r + 1.0;
  p = p * r + 1.0;
  // n sits in the low bits of `shifted`; the shift drops all others.
  const uint64_t scale = (std::bit_cast<uint64_t>(shifted) << 52) + (uint64_t{1023} << 52);
  return p * std::bit_cast<double>(scale);
}

bool any_not_finite(std::span<const float> values) {
  uint32_t any = 0;
  for (const float value : values) {
    const uint32_t exponent = std::bit_cast<uint32_t>(value) & 0x7f800000u;
    any |= (exponent == 0x7f800000u);
  }
  return any != 0;
}

std::span<const float> run_at(std::span<const float> logits, size_t begin) {
  return logits.subspan(begin, std::min(kLogitRun, logits.size() - begin));
}

}  // namespace

size_t first_not_finite(std::span<const float> logits) {
  for (size_t begin = 0; begin < logits.size(); begin += kLogitRun) {
    const std::span<const float> run = run_at(logits, begin);
    if (!any_not_finite(run)) continue;
    size_t i = 0;
    while (!any_not_finite(run.subspan(i, 1))) ++i;
    return begin + i;
  }
  return logits.size();
}

float largest(std::span<const float> logits) {
  // A vector type, because loops over arrays of lanes that are compared became scalar code; of 16
  // bytes, which every width compares in one instruction.
  using Lanes __attribute__((vector_size(16))) = float;
  constexpr size_t kWide = 4, kChains = 8;
  Lanes best[kChains];
  for (Lanes& chain : best) chain = Lanes{} - std::numeric_limits<float>::infinity();
  size_t i = 0;
  for (; i + kChains * kWide <= logits.size(); i += kChains * kWide) {
    for (size_t c = 0; c < kChains; ++c) {
      Lanes values;
      std::memcpy(&values, &logits[i + c * kWide], sizeof values);
      best[c] = values > best[c] ? values : best[c];
    }
  }
  for (size_t c = 1; c < kChains; ++c) best[0] = best[c] > best[0] ? best[c] : best[0];
  float out = best[0][0];
  for (size_t lane = 1; lane < kWide; ++lane) out = std::max(out, best[0][lane]);
  for (; i < logits.size(); ++i) out = std::max(out, logits[i]);
  return out;
}

HEARTH_EACH_WIDTH void column_maxima(std::span<const float> logits, std::span<float> maxima) {
  std::copy_n(logits.begin(), maxima.size(), maxima.begin());
  for (size_t begin = maxima.size(); begin < logits.size(); begin += maxima.size()) {
    const size_t left = std::min(maxima.size(), logits.size() - begin);
    for (size_t j = 0; j < left; ++j) {
      const float value = logits[begin + j];
      maxima[j] = value > maxima[j] ? value : maxima[j];
    }
  }
}

int32_t argmax(std::span<const float> logits) {
  float best = logits[0];
  size_t best_begin = 0;
  for (size_t begin = 0; begin < logits.size(); begin += kLogitRun) {
    const float run = largest(run_at(logits, begin));
    if (!(run > best)) continue;
    best = run;
    best_begin = begin;
  }
  const auto found = std::find(logits.begin() + best_begin, logits.end(), best);
  return narrow<int32_t>(found - logits.begin());
}

double exp_negative(double x) { return exp_of(x); }

void steps_down(std::span<const float> logits, float max, float steps_per_logit, int32_t most,
                int32_t* steps) {
  const auto limit = static_cast<float>(most);
  for (size_t i = 0; i < logits.size(); ++i) {
    const float down = (max - logits[i]) * steps_per_logit;
    steps[i] = static_cast<int32_t>(down < limit ? down : limit);
  }
}

void rough_weights(std::span<const float> logits, float max, float inverse_temperature,
                   float* out) {
  constexpr float kShift = 12582912.0f;  // 1.5 * 2^23
  for (size_t i = 0; i < logits.size(); ++i) {
    const float x = (logits[i] - max) * inverse_temperature;
    const float held = x > -87.0f ? x : -87.0f;
    const float shifted = held * 1.44269504f + kShift;
    const float n = shifted - kShift;
    const float r = (held - n * 0.693145752f) - n * 1.42860677e-6f;
    float p = 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    const uint32_t scale = (std::bit_cast<uint32_t>(shifted) << 23) + (uint32_t{127} << 23);
    out[i] = p * std::bit_cast<float>(scale);
  }
}

namespace {

/// Adds the weights of one run, of all and of those from `least` on.
void add_run(std::span<const float> run, float max, float inverse_temperature, float least,
             RoughMass* mass) {
  float values[kLogitRun], kept[kLogitRun];
  rough_weights(run, max, inverse_temperature, values);
  for (size_t i = 0; i < run.size(); ++i) kept[i] = run[i] >= least ? values[i] : 0.0f;
  std::fill(values + run.size(), values + kLogitRun, 0.0f);
  std::fill(kept + run.size(), kept + kLogitRun, 0.0f);
  float all[kLanes] = {}, before[kLanes] = {};
  for (size_t i = 0; i < kLogitRun; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      all[lane] += values[i + lane];
      before[lane] += kept[i + lane];
    }
  }
  for (size_t lane = 0; lane < kLanes; ++lane) {
    mass->all += all[lane];
    mass->before += before[lane];
  }
}

}  // namespace

RoughMass rough_mass(std::span<const float> logits, float max, float inverse_temperature,
                     size_t at) {
  const float value = logits[at];
  const float above = std::nextafter(value, std::numeric_limits<float>::infinity());
  RoughMass mass;
  const auto add = [&](size_t begin, size_t end, float least) {
    for (; begin < end; begin += kLogitRun) {
      const auto run = logits.subspan(begin, std::min(kLogitRun, end - begin));
      add_run(run, max, inverse_temperature, least, &mass);
    }
  };
  add(0, at, value);
  add(at, logits.size(), above);
  return mass;
}

HEARTH_EACH_WIDTH double sum_weights(std::span<const float> logits, float max,
                                     double inverse_temperature) {
  const double top = max;
  double values[kLogitRun];
  double lanes[kLanes] = {};
  for (size_t begin = 0; begin < logits.size(); begin += kLogitRun) {
    const std::span<const float> run = run_at(logits, begin);
    for (size_t i = 0; i < run.size(); ++i) {
      values[i] = exp_of((run[i] - top) * inverse_temperature);
    }
    for (size_t i = run.size(); i < kLogitRun; ++i) values[i] = 0;
    for (size_t i = 0; i < kLogitRun; i += kLanes) {
      for (size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += values[i + lane];
    }
  }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

HEARTH_EACH_WIDTH double sum_weighted(std::span<const float> logits, float max,
                                      double inverse_temperature) {
  const double top = max;
  double lanes[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const double x = (logits[i + lane] - top) * inverse_temperature;
      lanes[lane] += exp_of(x) * x;
    }
  }
  double sum = 0;
  for (; i < logits.size(); ++i) {
    const double x = (logits[i] - top) * inverse_temperature;
    sum += exp_of(x) * x;
  }
  for (const double lane : lanes) sum += lane;
  return sum;
}

}  // namespace hearth::engine
