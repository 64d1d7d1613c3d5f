#pragma once
// Whether drawn tokens have the right distribution: logits recorded from the bundled pair, a dozen
// settings of sampling, and the chi-square test.

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "engine/sampling/sampler.h"
#include "tests/paths.h"

namespace hearth::tests {

inline constexpr int32_t kVocab = 256;

struct Rows {
  std::vector<float> target, draft;
};

inline std::vector<float> numbers(const std::string& line) {
  std::istringstream in(line);
  return {std::istream_iterator<float>(in), {}};
}

/// Recorded from the bundled pair: the logits of both models at each of six places in tales, for
/// the tokens that are likeliest to the target.
inline std::vector<Rows> recorded() {
  std::ifstream in(hearth::tests::source_path("tests/unit/engine/recorded_logits.txt"));
  std::vector<Rows> out;
  std::string target, draft;
  std::getline(in, target);  // the label
  while (std::getline(in, target) && std::getline(in, draft)) {
    out.push_back({numbers(target), numbers(draft)});
    REQUIRE(out.back().target.size() == kVocab);
    REQUIRE(out.back().draft.size() == kVocab);
  }
  REQUIRE(out.size() == 6);
  return out;
}

inline Rows rows_of(uint32_t number) {
  static const std::vector<Rows> all = recorded();
  return all[number % all.size()];
}

inline std::vector<engine::SamplingParams> settings() {
  std::vector<engine::SamplingParams> out;
  const auto add = [&](float temperature, int32_t top_k, float top_p, float min_p, float typical) {
    engine::SamplingParams params;
    params.temperature = temperature;
    params.top_k = top_k;
    params.top_p = top_p;
    params.min_p = min_p;
    params.typical_p = typical;
    out.push_back(params);
  };
  add(1.0f, 0, 1, 0, 1);
  add(0.7f, 0, 1, 0, 1);
  add(0.2f, 0, 1, 0, 1);
  add(2.0f, 0, 1, 0, 1);
  add(1.0f, 5, 1, 0, 1);
  add(1.5f, 12, 1, 0, 1);
  add(1.0f, 0, 0.9f, 0, 1);
  add(0.8f, 40, 0.95f, 0, 1);
  add(1.0f, 0, 1, 0.1f, 1);
  add(1.2f, 0, 0.8f, 0.05f, 1);
  add(1.0f, 0, 1, 0, 0.7f);
  add(1.0f, 1, 1, 0, 1);
  return out;
}

/// Upper tail of the chi-square distribution. Source: Abramowitz and Stegun 1964, 6.5.29 (series)
/// and 6.5.31 (continued fraction) for the incomplete gamma function.
inline double chi_square_tail(double x, int32_t degrees) {
  const double a = degrees / 2.0;
  const double z = x / 2;
  if (z <= 0) return 1;
  const double scale = std::exp(a * std::log(z) - z - std::lgamma(a));
  if (z < a + 1) {
    double term = 1 / a, sum = term;
    for (int n = 1; n < 10'000 && term > sum * 1e-16; ++n) sum += term *= z / (a + n);
    return 1 - scale * sum;
  }
  double b = z + 1 - a, c = 1e300, d = 1 / b, h = d;
  for (int n = 1; n < 10'000; ++n) {
    const double an = -n * (n - a);
    b += 2;
    d = 1 / (an * d + b);
    c = b + an / c;
    const double step = d * c;
    h *= step;
    if (std::abs(step - 1) < 1e-15) break;
  }
  return scale * h;
}

/// p of the frequencies under the probabilities; rare tokens are counted together.
inline double p_value(const std::vector<engine::TokenProbability>& want,
                      const std::map<int32_t, int64_t>& seen, int64_t draws) {
  double statistic = 0, rare_expected = 0;
  int64_t rare_seen = draws;
  int32_t cells = 0;
  for (const engine::TokenProbability& entry : want) {
    const double expected = entry.probability * static_cast<double>(draws);
    const auto found = seen.find(entry.token);
    const int64_t count = found == seen.end() ? 0 : found->second;
    if (expected < 10) {
      rare_expected += expected;
      continue;
    }
    rare_seen -= count;
    statistic += (static_cast<double>(count) - expected) * (static_cast<double>(count) - expected) /
                 expected;
    ++cells;
  }
  if (rare_expected >= 5) {
    const double off = static_cast<double>(rare_seen) - rare_expected;
    statistic += off * off / rare_expected;
    ++cells;
  } else if (rare_seen > 60) {
    return 0;  // very unlikely tokens
  }
  return cells < 2 ? 1 : chi_square_tail(statistic, cells - 1);
}

}  // namespace hearth::tests
