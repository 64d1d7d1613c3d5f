#include "engine/sampling/logits.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace hearth::engine {
namespace {

std::vector<float> random_logits(size_t size, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 4);
  std::vector<float> out(size);
  for (float& logit : out) logit = normal(random);
  return out;
}

const std::vector<size_t> kSizes{1, 2, 7, 8, 9, 255, 256, 257, 1000, 5003};

TEST_CASE("largest and argmax: the first of equals, wherever it is") {
  for (const size_t size : kSizes) {
    std::vector<float> logits = random_logits(size, static_cast<uint32_t>(size));
    const auto best = std::ranges::max_element(logits);
    CHECK(largest(logits) == *best);
    CHECK(argmax(logits) == static_cast<size_t>(best - logits.begin()));
    for (const size_t at : {size_t{0}, size / 2, size - 1}) {
      std::fill(logits.begin(), logits.end(), -3.0f);
      logits[at] = logits.back() = 5.0f;
      CHECK(argmax(logits) == at);
    }
    std::fill(logits.begin(), logits.end(), std::numeric_limits<float>::lowest());
    CHECK(argmax(logits) == 0);
  }
}

TEST_CASE("column_maxima: each column's largest, where the last row is not full either") {
  for (const size_t size : kSizes) {
    const std::vector<float> logits = random_logits(size, static_cast<uint32_t>(size));
    for (const size_t columns : {size_t{1}, (size + 2) / 3, size}) {
      std::vector<float> want(columns, -std::numeric_limits<float>::infinity());
      for (size_t i = 0; i < size; ++i) {
        want[i % columns] = std::max(want[i % columns], logits[i]);
      }
      std::vector<float> maxima(columns);
      column_maxima(logits, maxima);
      CHECK(maxima == want);
    }
  }
}

TEST_CASE("first_not_finite finds infinities and NaN of either sign, and only them") {
  for (const size_t size : kSizes) {
    std::vector<float> logits = random_logits(size, 3);
    logits[size / 2] = std::numeric_limits<float>::max();
    CHECK(first_not_finite(logits) == size);
    for (const float bad :
         {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
          std::numeric_limits<float>::quiet_NaN()}) {
      for (const size_t at : {size_t{0}, size / 3, size - 1}) {
        std::vector<float> copy = logits;
        copy[at] = bad;
        copy.back() = bad;
        CHECK(first_not_finite(copy) == at);
      }
    }
  }
}

TEST_CASE("exp_negative equals the library's to a few units in the last place") {
  CHECK(exp_negative(0) == 1.0);
  for (double x = 0; x > -708; x -= 0.0137) {
    const double want = std::exp(x);
    CHECK(std::abs(exp_negative(x) - want) <= 1e-15 * want);
  }
  CHECK(exp_negative(-1e300) > 0);
  CHECK(exp_negative(-1e300) < 1e-300);
}

TEST_CASE("sum_weights adds up every weight once") {
  for (const size_t size : kSizes) {
    const std::vector<float> logits = random_logits(size, 9);
    const float max = largest(logits);
    double want = 0;
    for (const float logit : logits) want += std::exp((static_cast<double>(logit) - max) * 1.25);
    CHECK(sum_weights(logits, max, 1.25) == doctest::Approx(want).epsilon(1e-12));
  }
}

TEST_CASE("steps_down falls with the logit and stops at the last; rough_weights are near") {
  std::vector<float> logits = random_logits(1000, 12);
  logits[17] = std::numeric_limits<float>::lowest();
  const float max = largest(logits);
  std::vector<int32_t> steps(logits.size());
  std::vector<float> weights(logits.size());
  steps_down(logits, max, 64.0f, 2047, steps.data());
  rough_weights(logits, max, 1.25f, weights.data());
  for (size_t i = 0; i < logits.size(); ++i) {
    CHECK(steps[i] == static_cast<int32_t>(std::min(2047.0f, (max - logits[i]) * 64.0f)));
    const double want = std::exp(std::max(-87.0, (static_cast<double>(logits[i]) - max) * 1.25));
    CHECK(std::abs(weights[i] - want) <= 1e-5 * want);
    if (logits[i] == max) CHECK(weights[i] == 1.0f);
  }
}

TEST_CASE("rough_mass counts what comes before a value, equals by their position") {
  std::vector<float> logits = random_logits(1000, 13);
  for (size_t i = 0; i < logits.size(); i += 7) logits[i] = 0.25f;
  const float max = largest(logits);
  for (const size_t at :
       {size_t{0}, size_t{7}, size_t{255}, size_t{256}, size_t{700}, size_t{999}}) {
    double all = 0, before = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
      const double weight = std::exp((static_cast<double>(logits[i]) - max) * 1.25);
      all += weight;
      if (logits[i] > logits[at] || (logits[i] == logits[at] && i < at)) before += weight;
    }
    const RoughMass mass = rough_mass(logits, max, 1.25f, at);
    CHECK(std::abs(mass.all - all) <= 1e-5 * all);
    CHECK(std::abs(mass.before - before) <= 1e-5 * all);
  }
}

}  // namespace
}  // namespace hearth::engine
