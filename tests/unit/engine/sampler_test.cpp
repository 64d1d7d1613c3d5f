#include "engine/sampling/sampler.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <vector>

namespace hearth::engine {
namespace {

std::vector<float> random_logits(size_t size, uint32_t seed, float spread = 2.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> out(size);
  for (float& logit : out) logit = normal(random);
  return out;
}

SamplingParams plain() {
  SamplingParams params;
  params.temperature = 1;
  params.top_k = 0;
  params.top_p = 1;
  return params;
}

int32_t sample(Sampler& sampler, std::vector<float>& logits, const SamplingParams& params,
               int32_t position = 0, int32_t sample_index = 0,
               std::span<const int32_t> history = {}, std::span<const int32_t> banned = {}) {
  SampleArgs args;
  args.params = &params;
  args.history = history;
  args.banned = banned;
  args.sample = sample_index;
  args.position = position;
  return sampler.sample(logits, args).value().token;
}

/// The expected distribution, computed in the obvious way.
std::vector<double> expected(const std::vector<float>& logits, const SamplingParams& params) {
  const size_t n = logits.size();
  std::vector<double> p(n);
  double total = 0;
  for (size_t i = 0; i < n; ++i) {
    p[i] = std::exp(static_cast<double>(logits[i]) / params.temperature);
  }
  const auto normalize = [&] {
    total = std::accumulate(p.begin(), p.end(), 0.0);
    for (double& v : p) v /= total;
  };
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  normalize();
  if (params.top_k > 0) {
    for (size_t i = static_cast<size_t>(params.top_k); i < n; ++i) p[order[i]] = 0;
    normalize();
  }
  if (params.top_p < 1) {
    double mass = 0;
    for (const size_t i : order) {
      if (mass >= params.top_p && i != order.front()) p[i] = 0;
      mass += p[i];
    }
    normalize();
  }
  if (params.min_p > 0) {
    const double best = *std::max_element(p.begin(), p.end());
    for (double& v : p) v = v < params.min_p * best ? 0 : v;
    normalize();
  }
  if (params.typical_p < 1) {
    double entropy = 0;
    for (const double v : p) entropy -= v > 0 ? v * std::log(v) : 0;
    std::erase_if(order, [&](size_t i) { return p[i] == 0; });
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return std::abs(-std::log(p[a]) - entropy) < std::abs(-std::log(p[b]) - entropy);
    });
    double mass = 0;
    for (const size_t i : order) {
      const double v = p[i];
      if (mass >= params.typical_p) p[i] = 0;
      mass += v;
    }
    normalize();
  }
  return p;
}

TEST_CASE("draws follow the distribution under every truncation") {
  constexpr size_t kVocab = 40;
  constexpr int kDraws = 20'000;
  struct Case {
    float temperature;
    int32_t top_k;
    float top_p, min_p, typical_p;
  };
  const Case cases[] = {
      {1.0f, 0, 1.0f, 0.0f, 1.0f},   {0.5f, 0, 1.0f, 0.0f, 1.0f},  {2.0f, 0, 1.0f, 0.0f, 1.0f},
      {1.0f, 5, 1.0f, 0.0f, 1.0f},   {1.0f, 1, 1.0f, 0.0f, 1.0f},  {1.0f, 39, 1.0f, 0.0f, 1.0f},
      {1.0f, 100, 1.0f, 0.0f, 1.0f}, {1.0f, 0, 0.9f, 0.0f, 1.0f},  {1.0f, 0, 0.3f, 0.0f, 1.0f},
      {1.0f, 0, 0.0f, 0.0f, 1.0f},   {1.0f, 0, 1.0f, 0.1f, 1.0f},  {1.0f, 0, 1.0f, 1.0f, 1.0f},
      {1.0f, 0, 1.0f, 0.0f, 0.7f},   {1.0f, 0, 1.0f, 0.0f, 0.01f}, {0.8f, 20, 0.9f, 0.05f, 0.9f},
      {1.5f, 30, 0.95f, 0.02f, 0.8f}};
  Sampler sampler(kVocab);
  uint32_t seed = 1;
  for (const Case& c : cases) {
    CAPTURE(c.temperature);
    CAPTURE(c.top_k);
    CAPTURE(c.top_p);
    CAPTURE(c.min_p);
    CAPTURE(c.typical_p);
    SamplingParams params = plain();
    params.temperature = c.temperature;
    params.top_k = c.top_k;
    params.top_p = c.top_p;
    params.min_p = c.min_p;
    params.typical_p = c.typical_p;
    params.seed = ++seed;
    std::vector<float> logits = random_logits(kVocab, seed);
    const std::vector<double> want = expected(logits, params);
    std::vector<int> seen(kVocab, 0);
    for (int i = 0; i < kDraws; ++i)
      ++seen[static_cast<size_t>(sample(sampler, logits, params, i))];
    double chi_square = 0;
    int cells = 0;
    for (size_t i = 0; i < kVocab; ++i) {
      if (want[i] == 0) CHECK(seen[i] == 0);
      const double count = want[i] * kDraws;
      if (count < 5) continue;
      chi_square += (seen[i] - count) * (seen[i] - count) / count;
      ++cells;
    }
    // Mean cells - 1, deviation sqrt(2 (cells - 1)); seeds are fixed, so the result is
    // reproducible.
    CHECK(chi_square <= cells - 1 + 4 * std::sqrt(2.0 * cells));
  }
}

TEST_CASE("samples, positions and seeds draw independently") {
  // Two draws that differ in one coordinate agree as often as by chance.
  constexpr int kDraws = 8'000;
  Sampler sampler(4);
  std::vector<float> logits(4, 0.0f);
  for (int coordinate = 0; coordinate < 3; ++coordinate) {
    CAPTURE(coordinate);
    int equal = 0;
    for (int i = 0; i < kDraws; ++i) {
      SamplingParams params = plain();
      params.seed = static_cast<uint64_t>(coordinate == 0 ? 2 * i : 7);
      const int32_t a = sample(sampler, logits, params, 2 * i, 0);
      if (coordinate == 0) ++params.seed;
      equal += a == sample(sampler, logits, params, 2 * i + (coordinate == 1 ? 1 : 0),
                           coordinate == 2 ? 1 : 0);
    }
    CHECK(equal > kDraws / 4 - 160);  // four deviations
    CHECK(equal < kDraws / 4 + 160);
  }
}

TEST_CASE("noise is a fixed function of its address") {
  // Known values: a change of the hash would change the text of every seed.
  CHECK(noise_bits(0, 0, 0, 0) == noise_bits(0, 0, 0, 0));
  CHECK(noise_bits(1, 2, 3, 4) != noise_bits(1, 2, 4, 3));
  CHECK(noise_bits(1, 2, 3, 4) != noise_bits(1, 3, 2, 4));
  CHECK(std::isfinite(gumbel(0)));
  CHECK(std::isfinite(gumbel(UINT64_MAX)));
  CHECK(gumbel(UINT64_MAX) > 30);
  CHECK(gumbel(0) < -3);
  double sum = 0;
  double squares = 0;
  constexpr int kCount = 100'000;
  for (int i = 0; i < kCount; ++i) {
    const double g = gumbel(noise_bits(5, 0, i / 100, i % 100));
    sum += g;
    squares += g * g;
  }
  const double mean = sum / kCount;
  CHECK(mean == doctest::Approx(0.5772).epsilon(0.02));  // Euler's constant
  CHECK(squares / kCount - mean * mean == doctest::Approx(1.6449).epsilon(0.03));  // pi^2 / 6
}

TEST_CASE("skipping hopeless candidates never changes the draw") {
  constexpr size_t kVocab = 3000;
  Sampler sampler(kVocab);
  for (uint32_t seed = 1; seed <= 200; ++seed) {
    std::vector<float> logits = random_logits(kVocab, seed, seed % 2 == 0 ? 0.1f : 3.0f);
    SamplingParams params = plain();
    params.seed = seed;
    double best = -1e300;
    int32_t want = -1;
    for (size_t i = 0; i < kVocab; ++i) {
      const double score =
          logits[i] / 1.0 + gumbel(noise_bits(seed, 3, 17, static_cast<int32_t>(i)));
      if (score > best) {
        best = score;
        want = static_cast<int32_t>(i);
      }
    }
    REQUIRE(sample(sampler, logits, params, 17, 3) == want);
  }
}

TEST_CASE("a draw before top-p and min-p equals a draw from what they leave") {
  constexpr size_t kVocab = 1500;
  Sampler sampler(kVocab);
  int outside = 0;
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    std::vector<float> logits = random_logits(kVocab, seed, seed % 3 == 0 ? 3.0f : 0.3f);
    if (seed % 5 == 0) {  // many equals
      for (float& logit : logits) logit = std::round(logit * 4) / 4;
    }
    SamplingParams params = plain();
    params.seed = seed;
    params.temperature = seed % 2 == 0 ? 0.8f : 1.3f;
    params.top_p = std::array{0.5f, 0.8f, 0.95f, 0.999f}[seed % 4];
    params.min_p = seed % 7 == 0 ? 0.2f : 0.0f;
    SampleArgs args;
    args.params = &params;
    args.position = 17;
    std::vector<TokenProbability> left;
    REQUIRE(sampler.probabilities(logits, args, &left).ok());
    const auto score = [&](int32_t id) {
      return static_cast<double>(logits[static_cast<size_t>(id)]) / params.temperature +
             gumbel(noise_bits(seed, 0, 17, id));
    };
    int32_t want = left.front().token;
    for (const TokenProbability& token : left) {
      if (score(token.token) > score(want)) want = token.token;
    }
    int32_t of_all = 0;
    for (int32_t id = 1; id < static_cast<int32_t>(kVocab); ++id) {
      if (score(id) > score(of_all)) of_all = id;
    }
    outside += of_all != want;
    REQUIRE(sample(sampler, logits, params, 17) == want);
  }
  CHECK(outside > 20);  // some of these draws have met what is cut
}

TEST_CASE("greedy takes the best, the lowest id among equals") {
  Sampler sampler(6);
  SamplingParams params;
  params.temperature = 0;
  std::vector<float> logits = {1, 5, 2, 5, 5, -1};
  CHECK(sample(sampler, logits, params) == 1);
  CHECK(sample(sampler, logits, params, 9, 9) == 1);
  logits.assign(6, -3.0f);
  CHECK(sample(sampler, logits, params) == 0);
}

TEST_CASE("top-k keeps the k best of any row, the lowest ids among equals") {
  for (const int32_t vocab : {2, 37, 160, 161, 1000}) {
    Sampler sampler(vocab);
    for (const bool coarse : {false, true}) {
      std::vector<float> logits = random_logits(vocab, static_cast<uint32_t>(vocab));
      if (coarse) {
        for (float& logit : logits) logit = std::round(logit);
      }
      std::vector<int32_t> order(logits.size());
      std::iota(order.begin(), order.end(), 0);
      std::ranges::stable_sort(order, std::greater{}, [&](int32_t id) { return logits[id]; });
      for (const int32_t k : {1, 5, 40, vocab - 1}) {
        if (k >= vocab) continue;
        SamplingParams params = plain();
        params.top_k = k;
        SampleArgs args;
        args.params = &params;
        std::vector<TokenProbability> kept;
        REQUIRE(sampler.probabilities(logits, args, &kept).ok());
        std::vector<int32_t> want(order.begin(), order.begin() + k);
        std::ranges::sort(want);
        REQUIRE(kept.size() == want.size());
        for (size_t i = 0; i < kept.size(); ++i) CHECK(kept[i].token == want[i]);
      }
    }
  }
}

TEST_CASE("top-k keeps the lowest ids among equals") {
  Sampler sampler(200);
  SamplingParams params = plain();
  params.top_k = 3;
  std::vector<float> logits(200, 1.0f);
  std::set<int32_t> seen;
  for (int i = 0; i < 200; ++i) seen.insert(sample(sampler, logits, params, i));
  CHECK(seen == std::set<int32_t>{0, 1, 2});
}

TEST_CASE("penalties look at the window, and only there") {
  Sampler sampler(5);
  SamplingParams params;
  params.temperature = 0;
  const std::vector<int32_t> history = {4, 0, 0, 0, 1};
  std::vector<float> logits = {3.0f, 2.9f, 2.0f, -1.0f, 2.8f};
  params.repetition_penalty = 2.0f;  // 0 -> 1.5, 1 -> 1.45, 4 -> 1.4
  CHECK(sample(sampler, logits, params, 0, 0, history) == 2);
  params.penalty_window = 4;  // 4 is outside
  CHECK(sample(sampler, logits, params, 0, 0, history) == 4);
  params.penalty_window = 0;
  CHECK(sample(sampler, logits, params, 0, 0, history) == 0);
  params.penalty_window = -1;
  params.repetition_penalty = 1.0f;
  params.presence_penalty = 0.5f;  // 0 -> 2.5, 1 -> 2.4, 4 -> 2.3
  CHECK(sample(sampler, logits, params, 0, 0, history) == 0);
  params.frequency_penalty = 0.3f;  // 0 -> 1.6, 1 -> 2.1, 4 -> 2.0
  CHECK(sample(sampler, logits, params, 0, 0, history) == 1);
  // Negative logits are multiplied, so that they decrease, too.
  params = SamplingParams{};
  params.temperature = 0;
  params.repetition_penalty = 2.0f;
  std::vector<float> negative = {-1.0f, -1.5f, -9.0f, -9.0f, -9.0f};
  CHECK(sample(sampler, negative, params, 0, 0, std::vector<int32_t>{0}) == 1);
  // Negative penalties reward repetition.
  params.repetition_penalty = 1.0f;
  params.presence_penalty = -9.0f;
  CHECK(sample(sampler, negative, params, 0, 0, std::vector<int32_t>{3}) == 3);
}

TEST_CASE("bias comes before penalties, bans before everything after them") {
  Sampler sampler(4);
  SamplingParams params;
  params.temperature = 0;
  params.logit_bias = {{3, 4.0f}};
  std::vector<float> logits = {1.0f, 2.0f, 3.0f, 0.5f};
  CHECK(sample(sampler, logits, params) == 3);
  params.repetition_penalty = 4.0f;  // of the biased 4.5: 1.125
  CHECK(sample(sampler, logits, params, 0, 0, std::vector<int32_t>{3}) == 2);
  const std::vector<int32_t> banned = {2, 3};
  CHECK(sample(sampler, logits, params, 0, 0, {}, banned) == 1);
  params = plain();
  params.top_k = 2;
  for (int i = 0; i < 300; ++i) {
    CHECK(sample(sampler, logits, params, i, 0, {}, banned) <= 1);  // 2 and 3 are not among the 2
  }
  params.logit_bias = {{2, 1e30f}};
  CHECK(sample(sampler, logits, params, 0, 0, {}, banned) != 2);
}

TEST_CASE("a mask bans all other tokens, before every truncation") {
  const std::vector<float> logits = random_logits(300, 17);
  std::vector<uint64_t> mask(5, 0);
  std::vector<int32_t> others;
  for (int32_t id = 0; id < 300; ++id) {
    if (id % 7 == 3 || id == 299) {
      mask[static_cast<size_t>(id) / 64] |= uint64_t{1} << (id % 64);
    } else {
      others.push_back(id);
    }
  }
  const int32_t also[] = {12, 3};  // one of them by the mask already
  std::erase(others, 12);
  Sampler sampler(300);
  for (int variant = 0; variant < 6; ++variant) {
    SamplingParams params = plain();
    if (variant == 0) params.temperature = 0;
    if (variant == 2) params.top_k = 5;
    if (variant == 3) params.top_p = 0.8f;
    if (variant == 4) params.min_p = 0.2f;
    if (variant == 5) params.typical_p = 0.6f;
    for (int32_t position = 0; position < 50; ++position) {
      std::vector<float> row = logits;
      SampleArgs args;
      args.params = &params;
      args.position = position;
      args.mask = mask;
      args.also = also;
      const int32_t token = sampler.sample(row, args).value().token;
      CHECK(row == logits);
      std::vector<float> again = logits;
      CHECK(token == sample(sampler, again, params, position, 0, {}, others));
    }
  }
}

TEST_CASE("logits are restored, and sampling again gives the same") {
  constexpr size_t kVocab = 500;
  Sampler sampler(kVocab);
  std::vector<float> logits = random_logits(kVocab, 3);
  const std::vector<float> before = logits;
  SamplingParams params;
  params.repetition_penalty = 1.3f;
  params.logit_bias = {{7, 3.0f}, {7, 1.0f}, {9, -2.0f}};
  params.seed = 11;
  const std::vector<int32_t> history = {7, 7, 9, 12};
  const std::vector<int32_t> banned = {1, 7};
  const int32_t first = sample(sampler, logits, params, 4, 0, history, banned);
  CHECK(logits == before);
  CHECK(sample(sampler, logits, params, 4, 0, history, banned) == first);
  Sampler fresh(kVocab);
  CHECK(sample(fresh, logits, params, 4, 0, history, banned) == first);
}

TEST_CASE("logprobs are those of the raw distribution, best first") {
  constexpr size_t kVocab = 100;
  Sampler sampler(kVocab);
  std::vector<float> logits = random_logits(kVocab, 5);
  logits[20] = logits[30] = 9.0f;
  SamplingParams params;
  params.temperature = 0;
  params.top_logprobs = 4;
  params.logit_bias = {{50, 100.0f}};  // chosen, but not likely
  SampleArgs args;
  args.params = &params;
  const Sampled sampled = sampler.sample(logits, args).value();
  CHECK(sampled.token == 50);
  double total = 0;
  for (const float logit : logits) total += std::exp(static_cast<double>(logit));
  CHECK(*sampled.logprob == doctest::Approx(logits[50] - std::log(total)).epsilon(1e-5));
  const Sampler::Score score = sampler.score(logits, 50, 4).value();
  CHECK(*sampled.logprob == score.logprob);
  CHECK(score.best.size() == 4);
  REQUIRE(sampled.top_logprobs.size() == 4);
  CHECK(sampled.top_logprobs[0].token == 20);
  CHECK(sampled.top_logprobs[1].token == 30);
  for (size_t i = 1; i < 4; ++i) {
    CHECK(sampled.top_logprobs[i].logprob <= sampled.top_logprobs[i - 1].logprob);
  }
  params.top_logprobs = 0;
  CHECK(sampler.sample(logits, args).value().top_logprobs.empty());
  CHECK(sampler.sample(logits, args).value().logprob.has_value());
  params.top_logprobs = 1000;
  CHECK(sampler.sample(logits, args).value().top_logprobs.size() == kVocab);
  params.top_logprobs = -1;
  CHECK_FALSE(sampler.sample(logits, args).value().logprob.has_value());
}

TEST_CASE("a value that is not finite is an error that names the token") {
  constexpr size_t kVocab = 1000;
  Sampler sampler(kVocab);
  const SamplingParams params = plain();
  SampleArgs args;
  args.params = &params;
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()}) {
    for (const size_t at : {size_t{0}, size_t{255}, size_t{256}, size_t{999}}) {
      std::vector<float> logits = random_logits(kVocab, 1);
      logits[at] = bad;
      const auto result = sampler.sample(logits, args);
      REQUIRE_FALSE(result.ok());
      CHECK(result.error().code == ErrorCode::kInternal);
      CHECK(result.error().message.find("token " + std::to_string(at)) != std::string::npos);
      CHECK_FALSE(sampler.score(logits, 0, 1).ok());
    }
  }
}

TEST_CASE("extreme but finite values do not break a draw") {
  Sampler sampler(64);
  const float big = std::numeric_limits<float>::max();
  const float small = std::numeric_limits<float>::denorm_min();
  for (const float temperature : {0.0f, small, 1e-6f, 1.0f, 1e6f}) {
    for (const float top_p : {0.5f, 1.0f}) {
      for (const float typical : {0.5f, 1.0f}) {
        SamplingParams params = plain();
        params.temperature = temperature;
        params.top_p = top_p;
        params.typical_p = typical;
        params.min_p = 0.1f;
        params.repetition_penalty = 1e6f;
        params.presence_penalty = 1e6f;
        params.logit_bias = {{3, big}, {4, -big}};
        std::vector<float> logits(64, 0.0f);
        logits[0] = big;
        logits[1] = -big;
        const int32_t token =
            sample(sampler, logits, params, 1, 0, std::vector<int32_t>{0, 1, 2, 3});
        CHECK(token >= 0);
        CHECK(token < 64);
      }
    }
  }
}

TEST_CASE("a device's draw, and the best logits it returns, give the sampler's token") {
  constexpr int32_t kVocab = 700;
  Sampler sampler(kVocab);
  const kernels::OpTable ops = kernels::reference_ops();
  kernels::BatchIndex batch;
  batch.num_tokens = batch.num_outputs = 1;
  int drawn = 0;
  for (uint32_t seed = 1; seed <= 400; ++seed) {
    std::vector<float> logits = random_logits(kVocab, seed, seed % 2 == 0 ? 0.1f : 3.0f);
    if (seed % 5 == 0) {  // many equals
      for (float& logit : logits) logit = std::round(logit * 4) / 4;
    }
    const kernels::TensorView view{logits.data(), kernels::DType::kF32, 1, kVocab, kVocab};
    SamplingParams params = plain();
    params.seed = seed;
    params.temperature = std::array{0.0f, 0.7f, 1.0f, 1.5f}[seed % 4];
    const kernels::DrawRow row{params.temperature, seed, 3, 17};
    int32_t token = 0;
    ops.draw->draw(ops.state.get(), {&batch, view, &row, &token});
    drawn += token != kernels::kNotDrawn;
    if (token != kernels::kNotDrawn) REQUIRE(token == sample(sampler, logits, params, 17, 3));
    if (params.temperature == 0) continue;

    kernels::BestLogits best;
    ops.draw->best_logits(ops.state.get(), {&batch, view, &best});
    params.top_k = 1 + static_cast<int32_t>(seed % kernels::BestLogits::kCount);
    params.top_p = seed % 3 == 0 ? 0.8f : 1.0f;
    params.min_p = seed % 7 == 0 ? 0.05f : 0.0f;
    params.typical_p = seed % 11 == 0 ? 0.7f : 1.0f;
    SampleArgs args;
    args.params = &params;
    args.sample = 3;
    args.position = 17;
    REQUIRE(sampler.sample(best, args)->token == sample(sampler, logits, params, 17, 3));
  }
  CHECK(drawn >= 395);
}

TEST_CASE("ids beyond the logits, as those of rare tokens that a draft never has, are ignored") {
  Sampler sampler(16);
  std::vector<float> logits = random_logits(16, 3);
  const int32_t best = static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());
  SamplingParams params = plain();
  params.temperature = 0;
  params.logit_bias = {{16, 50.0f}, {100'000, 50.0f}};
  params.repetition_penalty = 1.3f;
  params.presence_penalty = 0.5f;
  const std::vector<int32_t> history = {16, 77, 100'000};
  const std::vector<int32_t> banned = {16, 99};
  const std::vector<float> before = logits;
  CHECK(sample(sampler, logits, params, 5, 0, history, banned) == best);
  CHECK(logits == before);
}

}  // namespace
}  // namespace hearth::engine
