// Drafting does not change the distribution of drawn tokens: the frequencies of the verifiers'
// output are compared with the target's probabilities, over many settings with fixed seeds, and
// these tests detect a bias of three percent.

#include "engine/speculation/verifier.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <vector>

#include "tests/skip.h"
#include "tests/unit/engine/distributions.h"

namespace hearth::engine {
namespace {

using namespace tests;

TEST_CASE("the chi-square tail equals that of the tables") {
  CHECK(chi_square_tail(3.841459, 1) == doctest::Approx(0.05).epsilon(1e-5));
  CHECK(chi_square_tail(18.30704, 10) == doctest::Approx(0.05).epsilon(1e-5));
  CHECK(chi_square_tail(2.558212, 10) == doctest::Approx(0.99).epsilon(1e-5));
  CHECK(chi_square_tail(66.76596, 40) == doctest::Approx(0.005).epsilon(1e-4));
}

int64_t num_draws() { return tests::full_counts() ? 200'000 : 8'000; }

double uniform(std::mt19937_64& random) { return static_cast<double>(random() >> 11) * 0x1p-53; }

int32_t draw_from(const std::vector<TokenProbability>& from, double u) {
  for (const TokenProbability& entry : from) {
    u -= entry.probability;
    if (u < 0) return entry.token;
  }
  return from.back().token;
}

/// Draws with the verifier, whose acceptance is `bias` times the correct one.
std::map<int32_t, int64_t> through_rejection(const std::vector<TokenProbability>& q,
                                             const std::vector<TokenProbability>& p, int64_t draws,
                                             uint64_t seed, double bias = 1.0) {
  std::mt19937_64 random(seed);
  std::map<int32_t, int64_t> seen;
  for (int64_t i = 0; i < draws; ++i) {
    const int32_t draft = draw_from(p, uniform(random));
    const double accept = uniform(random) / bias;
    ++seen[verify_by_rejection(q, p, draft, accept, uniform(random)).token];
  }
  return seen;
}

TEST_CASE("rejection sampling is distributed as the target") {
  Sampler sampler(kVocab);
  uint32_t seed = 1;
  for (const SamplingParams& params : settings()) {
    Rows rows = rows_of(seed);
    CAPTURE(seed);
    SampleArgs args;
    args.params = &params;
    std::vector<TokenProbability> q, p;
    REQUIRE(sampler.probabilities(rows.target, args, &q).ok());
    REQUIRE(sampler.probabilities(rows.draft, args, &p).ok());
    CHECK(p_value(q, through_rejection(q, p, num_draws(), seed), num_draws()) > 1e-4);
    // A draft independent of the target, and one that equals it.
    const std::vector<TokenProbability> certain = {{q.front().token, 1.0}};
    CHECK(p_value(q, through_rejection(q, certain, num_draws(), seed), num_draws()) > 1e-4);
    CHECK(p_value(q, through_rejection(q, q, num_draws(), seed), num_draws()) > 1e-4);
    ++seed;
  }
}

/// A distribution over few tokens, in which little else than the likeliest token's frequency
/// varies.
struct FewTokens {
  FewTokens() {
    args.params = &params;
    REQUIRE(sampler.probabilities(rows.target, args, &target).ok());
  }
  Sampler sampler{kVocab};
  SamplingParams params = settings()[4];
  Rows rows = rows_of(2);
  SampleArgs args;
  std::vector<TokenProbability> target;
};

TEST_CASE("three percent too many acceptances are detected") {
  const std::vector<TokenProbability> q = FewTokens().target;
  // The likeliest token is always drafted: its frequency is its acceptance.
  const auto best = std::ranges::max_element(q, {}, &TokenProbability::probability);
  const std::vector<TokenProbability> certain = {{best->token, 1.0}};
  CAPTURE(best->probability);
  CHECK(p_value(q, through_rejection(q, certain, 200'000, 5), 200'000) > 1e-4);
  CHECK(p_value(q, through_rejection(q, certain, 200'000, 5, 1.03), 200'000) < 1e-6);
}

TEST_CASE(
    "equality under addressed noise: distributed as the target, with the best acceptance "
    "possible") {
  Sampler sampler(kVocab);
  uint32_t seed = 1;
  for (const SamplingParams& given : settings()) {
    CAPTURE(seed);
    Rows rows = rows_of(seed);
    SamplingParams params = given;
    SampleArgs args;
    args.params = &params;
    std::vector<TokenProbability> q;
    REQUIRE(sampler.probabilities(rows.target, args, &q).ok());
    std::map<int32_t, int64_t> seen;
    int64_t accepted = 0;
    const int64_t draws = num_draws();
    const int32_t certain = q.front().token;
    for (int64_t i = 0; i < draws; ++i) {
      params.seed = static_cast<uint64_t>(i) / 100 + seed * 100'000;
      args.position = static_cast<int32_t>(i % 100);
      // A drafted token is accepted if it is the one drawn anyway, so the output is the drawn token
      // in any case.
      const int32_t token = sampler.sample(rows.target, args)->token;
      ++seen[token];
      accepted += token == certain ? 1 : 0;
    }
    CHECK(p_value(q, seen, draws) > 1e-4);
    const double chance = q.front().probability;
    const double deviation =
        std::sqrt(std::max(1.0, chance * (1 - chance) * static_cast<double>(draws)));
    CHECK(std::abs(static_cast<double>(accepted) - chance * static_cast<double>(draws)) <
          5 * deviation);
    ++seed;
  }
}

TEST_CASE("equality that accepts three percent too much is detected") {
  FewTokens few;
  const std::vector<TokenProbability>& q = few.target;
  const auto best = std::ranges::max_element(q, {}, &TokenProbability::probability);
  const int64_t draws = tests::full_counts() ? 200'000 : 60'000;
  for (const double bias : {0.0, 0.03}) {
    CAPTURE(bias);
    std::map<int32_t, int64_t> seen;
    std::mt19937_64 random(8);
    for (int64_t i = 0; i < draws; ++i) {
      few.params.seed = static_cast<uint64_t>(i);
      const int32_t token = few.sampler.sample(few.rows.target, few.args)->token;
      // The drafted token is the likeliest; some of its rejections are turned into acceptances.
      const bool planted = uniform(random) < bias;
      ++seen[token != best->token && planted ? best->token : token];
    }
    if (bias > 0) {
      CHECK(p_value(q, seen, draws) < 1e-6);
    } else {
      CHECK(p_value(q, seen, draws) > 1e-4);
    }
  }
}

TEST_CASE("rejection at the extremes") {
  const std::vector<TokenProbability> q = {{3, 0.5}, {7, 0.5}};
  // A drafted token of probability zero.
  CHECK_FALSE(verify_by_rejection(q, q, 5, 0.0, 0.0).accepted);
  const std::vector<TokenProbability> other = {{5, 1.0}};
  CHECK(verify_by_rejection(q, other, 5, 0.0, 0.0).token == 3);
  CHECK(verify_by_rejection(q, other, 5, 0.0, 0.999).token == 7);
  CHECK(verify_by_rejection(q, other, 5, 0.0, 1.0).token == 7);
  // q = p: accepted whatever the noise.
  CHECK(verify_by_rejection(q, q, 7, 0.999999, 0.5).accepted);
  const std::vector<TokenProbability> sure = {{7, 1.0}};
  CHECK(verify_by_rejection(sure, q, 3, 0.5, 0.5).token == 7);
  CHECK(verify_by_rejection(sure, q, 7, 0.999, 0.5).accepted);
}

}  // namespace
}  // namespace hearth::engine
