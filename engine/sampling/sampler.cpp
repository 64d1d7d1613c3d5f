#include "engine/sampling/sampler.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "engine/sampling/logits.h"
#include "kernels/base/check.h"
#include "kernels/base/numbers.h"
#include "kernels/ops/draw.h"

namespace hearth::engine {
namespace {

Result<void> check_finite(std::span<const float> logits) {
  const size_t bad = first_not_finite(logits);
  if (bad == logits.size()) return {};
  return Error::internal(fmt::format(
      "the model computed the logit {} for token {}, want a finite number", logits[bad], bad));
}

/// log of the sum of exp(logits).
double log_sum_exp(std::span<const float> logits) {
  const float max = largest(logits);
  return max + std::log(sum_weights(logits, max, 1.0));
}

/// Least of the 64 bits of a token that may reach `score` from logit / temperature = x, or a little
/// less. Noise grows with them, so most tokens are distinguished by one comparison instead of two
/// logarithms.
uint64_t least_bits(double score, double x) {
  // With noise g(u) >= wanted, u >= exp(-exp(-wanted)); measured as the distance from 1, because
  // doubles near 1 are too coarse. The slacks are many times the rounding of scores and of u.
  const double wanted = score - x - 1e-9 - 1e-14 * std::abs(x);
  const double below_one = -std::expm1(-std::exp(-wanted)) * (1 + 1e-9) + 0x1p-50;
  if (!(below_one < 1)) return 0;
  return ~uint64_t{0} - static_cast<uint64_t>(below_one * 0x1p64);
}

/// Index of the largest score logit / temperature + noise so far, and the score.
struct Best {
  double score = -std::numeric_limits<double>::infinity();
  int32_t token = std::numeric_limits<int32_t>::max();

  void consider(double x, uint64_t bits, int32_t id) {
    const double met = x + gumbel(bits);
    if (met < score || (met == score && id >= token)) return;
    score = met;
    token = id;
  }
};

/// Whether every token stays a candidate.
bool keeps_all(const SamplingParams& params, size_t vocab_size) {
  const bool top_k = params.top_k > 0 && std::cmp_less(params.top_k, vocab_size);
  return !top_k && params.top_p >= 1 && params.min_p <= 0 && params.typical_p >= 1;
}

bool better(const TokenLogprob& a, const TokenLogprob& b) {
  return a.logprob != b.logprob ? a.logprob > b.logprob : a.token < b.token;
}

std::vector<TokenLogprob> best_logprobs(std::span<const float> logits, double log_sum, size_t n) {
  std::vector<TokenLogprob> best;  // a heap with the worst in front
  n = std::min(n, logits.size());
  if (n == 0) return best;
  best.reserve(n + 1);
  for (size_t begin = 0; begin < logits.size(); begin += kLogitRun) {
    const auto run = logits.subspan(begin, std::min(kLogitRun, logits.size() - begin));
    if (best.size() == n && largest(run) < best.front().logprob) continue;
    for (size_t i = 0; i < run.size(); ++i) {
      const TokenLogprob entry{narrow<int32_t>(begin + i), run[i]};
      if (best.size() == n && !better(entry, best.front())) continue;
      best.push_back(entry);
      std::ranges::push_heap(best, better);
      if (best.size() <= n) continue;
      std::ranges::pop_heap(best, better);
      best.pop_back();
    }
  }
  std::ranges::sort_heap(best, better);
  for (TokenLogprob& entry : best) entry.logprob = static_cast<float>(entry.logprob - log_sum);
  return best;
}

}  // namespace

uint64_t noise_bits(uint64_t seed, int32_t sample, int32_t position, int32_t token) {
  return kernels::noise_bits(kernels::noise_key(seed, sample, position), token);
}

double gumbel(uint64_t bits) { return -std::log(-std::log(kernels::noise_uniform(bits))); }

Sampler::Sampler(int32_t vocab_size) : counts_(vocab_size, 0) {
  HEARTH_CHECK(vocab_size > 0, "vocab_size={}", vocab_size);
}

Result<Sampler::Score> Sampler::score(std::span<const float> logits, int32_t token,
                                      int32_t num_best) const {
  HEARTH_TRY(check_finite(logits));
  const double log_sum = log_sum_exp(logits);
  return Score{.logprob = static_cast<float>(logits[token] - log_sum),
               .best = best_logprobs(logits, log_sum, std::max(0, num_best))};
}

Result<Sampled> Sampler::sample(std::span<float> logits, const SampleArgs& args) {
  HEARTH_CHECK(logits.size() == counts_.size(), "{} logits", logits.size());
  HEARTH_TRY(check_finite(logits));
  const SamplingParams& params = *args.params;
  Sampled out;
  double log_sum = 0;
  if (params.top_logprobs >= 0) {
    log_sum = log_sum_exp(logits);
    out.top_logprobs = best_logprobs(logits, log_sum, params.top_logprobs);
  }
  apply_bias_and_penalties(logits, args);
  if (!args.mask.empty()) {
    out.token = draw_masked(logits, args);
  } else if (params.temperature <= 0) {
    out.token = argmax(logits);
  } else if (keeps_all(params, logits.size())) {
    out.token = draw_from_all(logits, args);
  } else if (const auto token = draw_then_cut(logits, args)) {
    out.token = *token;
  } else {
    collect(logits, params);
    truncate(params);
    out.token = draw(args);
  }
  restore(logits);
  if (params.top_logprobs >= 0) {
    out.logprob = static_cast<float>(logits[out.token] - log_sum);
  }
  return out;
}

Result<Sampled> Sampler::sample(const kernels::BestLogits& best, const SampleArgs& args) {
  const SamplingParams& params = *args.params;
  HEARTH_CHECK(params.top_k > 0 && params.top_k <= kernels::BestLogits::kCount &&
                   params.temperature > 0 && args.mask.empty() && args.banned.empty(),
               "top_k={}", params.top_k);
  const double temperature = params.temperature;
  candidates_.clear();
  for (int32_t i = 0; i < params.top_k; ++i) {
    candidates_.push_back({best.logit[i] / temperature, best.token[i]});
  }
  num_sorted_ = candidates_.size();
  truncate(params);
  Sampled out;
  out.token = draw(args);
  return out;
}

Result<void> Sampler::probabilities(std::span<float> logits, const SampleArgs& args,
                                    std::vector<TokenProbability>* out) {
  HEARTH_CHECK(logits.size() == counts_.size(), "{} logits", logits.size());
  HEARTH_TRY(check_finite(logits));
  out->clear();
  apply_bias_and_penalties(logits, args);
  if (args.params->temperature <= 0) {
    out->push_back({argmax(logits), 1.0});
  } else {
    collect(logits, *args.params);
    truncate(*args.params);
    double max = candidates_.front().x;
    for (const Candidate& c : candidates_) max = std::max(max, c.x);
    double total = 0;
    for (const Candidate& c : candidates_) total += std::exp(c.x - max);
    for (const Candidate& c : candidates_) out->push_back({c.id, std::exp(c.x - max) / total});
    std::ranges::sort(*out, {}, &TokenProbability::token);
  }
  restore(logits);
  return {};
}

void Sampler::truncate(const SamplingParams& params) {
  // Without top-k, `collect` has done it.
  if (params.top_p < 1 && num_sorted_ > 0) truncate_top_p(params.top_p);
  if (params.min_p > 0) truncate_min_p(params.min_p);
  if (params.typical_p < 1) truncate_typical(params.typical_p);
}

void Sampler::restore(std::span<float> logits) {
  for (auto changed = changed_.rbegin(); changed != changed_.rend(); ++changed) {
    logits[changed->id] = changed->before;
  }
}

// ---- Bias, penalties, bans ------------------------------------------------------------------

void Sampler::set(std::span<float> logits, int32_t id, float value) {
  float& logit = logits[id];
  changed_.push_back({id, logit});
  logit = value;
}

void Sampler::apply_bias_and_penalties(std::span<float> logits, const SampleArgs& args) {
  // Any finite parameters must leave finite logits, so results are held inside this range.
  constexpr float kLimit = 1e30f;
  const SamplingParams& params = *args.params;
  changed_.clear();
  const auto beyond = [&](int32_t id) { return std::cmp_greater_equal(id, logits.size()); };
  for (const auto& [id, bias] : params.logit_bias) {
    if (beyond(id)) continue;
    set(logits, id, std::clamp(logits[id] + bias, -kLimit, kLimit));
  }
  if (params.repetition_penalty != 1.0f || params.presence_penalty != 0.0f ||
      params.frequency_penalty != 0.0f) {
    std::span<const int32_t> window = args.history;
    if (params.penalty_window >= 0 && std::cmp_less(params.penalty_window, window.size())) {
      window = window.last(params.penalty_window);
    }
    for (const int32_t id : window) {
      if (!beyond(id)) ++counts_[id];
    }
    for (const int32_t id : window) {
      if (beyond(id)) continue;
      const int32_t count = std::exchange(counts_[id], 0);
      if (count == 0) continue;
      float logit = logits[id];
      logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
      logit -= params.presence_penalty + params.frequency_penalty * static_cast<float>(count);
      set(logits, id, std::clamp(logit, -kLimit, kLimit));
    }
  }
  // Below anything a bias can reach. Where everything is banned, something banned is drawn.
  for (const int32_t id : args.banned) {
    if (!beyond(id)) set(logits, id, std::numeric_limits<float>::lowest());
  }
}

// ---- Candidates -----------------------------------------------------------------------------

namespace {

/// Best first.
constexpr auto kBetter = [](const auto& a, const auto& b) {
  return a.x != b.x ? a.x > b.x : a.id < b.id;
};

/// Appends the wanted values of one run (kLogitRun at most). Writes every value and advances only
/// past wanted ones, because a branch per value would be mispredicted often.
template <typename Candidate, typename Wanted>
void append_run(std::vector<Candidate>* out, std::span<const float> logits, size_t begin,
                size_t end, double temperature, const Wanted& wanted) {
  Candidate run[kLogitRun + 1];
  size_t count = 0;
  for (size_t i = begin; i < end; ++i) {
    run[count] = {logits[i] / temperature, narrow<int32_t>(i)};
    count += wanted(i);
  }
  out->insert(out->end(), run, run + count);
}

}  // namespace

void Sampler::collect(std::span<const float> logits, const SamplingParams& params) {
  const double temperature = params.temperature;
  if (params.top_k > 0 && std::cmp_less(params.top_k, logits.size())) {
    return collect_top_k(logits, params.top_k, temperature);
  }
  if (params.top_p < 1) return collect_top_p(logits, params.top_p, temperature);
  float floor = -std::numeric_limits<float>::infinity();
  if (params.min_p > 0) {
    // A little below the bound of min-p, which is applied exactly later.
    const double max = largest(logits);
    const double below = (std::log(params.min_p) - 1e-3) * temperature - 1e-5 * std::abs(max);
    floor = static_cast<float>(std::max<double>(max + below, std::numeric_limits<float>::lowest()));
  }
  collect_from(logits, floor, temperature);
}

int32_t Sampler::draw_masked(std::span<const float> logits, const SampleArgs& args) {
  const SamplingParams& params = *args.params;
  const bool greedy = params.temperature <= 0;
  const double temperature = greedy ? 1.0 : params.temperature;
  candidates_.clear();
  num_sorted_ = 0;
  const auto add = [&](size_t id) {
    const auto token = narrow<int32_t>(id);
    if (std::ranges::find(args.banned, token) != args.banned.end()) return;
    candidates_.push_back({logits[id] / temperature, token});
  };
  const auto allowed = [&args](size_t id) { return (args.mask[id / 64] >> (id % 64) & 1) != 0; };
  for (size_t word = 0; word < args.mask.size(); ++word) {
    for (uint64_t bits = args.mask[word]; bits != 0; bits &= bits - 1) {
      const size_t id = word * 64 + std::countr_zero(bits);
      if (id < logits.size()) add(id);
    }
  }
  for (size_t i = 0; i < args.also.size(); ++i) {
    const auto before = args.also.first(i);
    if (std::ranges::find(before, args.also[i]) != before.end()) continue;
    if (!allowed(args.also[i])) add(args.also[i]);
  }
  HEARTH_CHECK(!candidates_.empty(), "a mask without tokens");
  if (greedy) {
    sort_best(1);
    return candidates_.front().id;
  }
  if (params.top_k > 0 && std::cmp_less(params.top_k, candidates_.size())) {
    sort_best(params.top_k);
    candidates_.resize(params.top_k);
  }
  if (params.top_p < 1) truncate_top_p(params.top_p);
  if (params.min_p > 0) truncate_min_p(params.min_p);
  if (params.typical_p < 1) truncate_typical(params.typical_p);
  return draw(args);
}

void Sampler::collect_from(std::span<const float> logits, float floor, double temperature) {
  candidates_.clear();
  num_sorted_ = 0;
  for (size_t begin = 0; begin < logits.size(); begin += kLogitRun) {
    const size_t end = std::min(logits.size(), begin + kLogitRun);
    if (largest(logits.subspan(begin, end - begin)) < floor) continue;
    append_run(&candidates_, logits, begin, end, temperature,
               [&](size_t i) { return !(logits[i] < floor); });
  }
}

// The kept tokens need no order, only the border matters. So the mass of all tokens is summed in
// bins of falling logits, and candidates are sorted only in the bin that contains the border.
void Sampler::collect_top_p(std::span<const float> logits, double top_p, double temperature) {
  constexpr int32_t kBinsPerUnit = 64, kBins = 32 * kBinsPerUnit;
  const float max = largest(logits);
  // Bounded so that no difference of logits times it exceeds the range of a float.
  const auto inverse = static_cast<float>(std::min(1 / temperature, 1e6));
  const float bins_per_logit = inverse * kBinsPerUnit;  // the last bin takes all lower logits
  // Four sums of each bin in turn: most logits fall into one bin, and each addition to a sum waits
  // for the one before it.
  constexpr size_t kSums = 4;
  bins_.assign(kSums * kBins, 0.0);
  int32_t bin[kLogitRun];
  float values[kLogitRun];
  for (size_t begin = 0; begin < logits.size(); begin += kLogitRun) {
    const auto run = logits.subspan(begin, std::min(kLogitRun, logits.size() - begin));
    rough_weights(run, max, inverse, values);
    steps_down(run, max, bins_per_logit, kBins - 1, bin);
    for (size_t i = 0; i < run.size(); ++i) {
      bins_[kSums * bin[i] + i % kSums] += values[i];
    }
  }
  for (size_t b = 0; b < kBins; ++b) {
    const double* sums = &bins_[kSums * b];
    bins_[b] = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  }
  bins_.resize(kBins);
  double total = 0;
  for (const double mass : bins_) total += mass;
  int32_t border = 0;
  double mass = 0;  // of the bins before the border's bin
  for (; border + 1 < kBins; ++border) {
    const double with = mass + bins_[border];
    if (with >= top_p * total) break;
    mass = with;
  }

  candidates_.clear();
  border_.clear();
  for (size_t begin = 0; begin < logits.size(); begin += kLogitRun) {
    const auto run = logits.subspan(begin, std::min(kLogitRun, logits.size() - begin));
    const float best = largest(run);
    steps_down({&best, 1}, max, bins_per_logit, kBins - 1, bin);
    if (bin[0] > border) continue;
    steps_down(run, max, bins_per_logit, kBins - 1, bin);
    const size_t end = begin + run.size();
    append_run(&candidates_, logits, begin, end, temperature,
               [&](size_t i) { return bin[i - begin] < border; });
    for (size_t i = begin; i < end; ++i) {
      if (bin[i - begin] != border) continue;
      border_.push_back({logits[i] / temperature, narrow<int32_t>(i)});
    }
  }
  std::ranges::sort(border_, kBetter);
  const double top = max / temperature;
  for (const Candidate& c : border_) {
    candidates_.push_back(c);
    mass += exp_negative(std::min(0.0, c.x - top));
    if (mass >= top_p * total) break;
  }
  num_sorted_ = 0;
}

// The k-th largest of the maxima of some columns of logits is at most the k-th largest logit, and
// near it, so hardly more than k logits become candidates.
void Sampler::collect_top_k(std::span<const float> logits, size_t k, double temperature) {
  constexpr size_t kColumnsPerKept = 4;
  constexpr size_t kPart = 16;  // of a run
  candidates_.clear();
  num_sorted_ = 0;
  maxima_.resize(std::min(logits.size(), k * kColumnsPerKept));
  column_maxima(logits, maxima_);
  std::ranges::nth_element(maxima_, maxima_.begin() + k - 1, std::greater{});
  const float least = maxima_[k - 1];
  for (size_t begin = 0; begin < logits.size(); begin += kLogitRun) {
    const size_t end = std::min(logits.size(), begin + kLogitRun);
    if (largest(logits.subspan(begin, end - begin)) < least) continue;
    for (size_t part = begin; part < end; part += kPart) {
      const size_t part_end = std::min(end, part + kPart);
      uint32_t any = 0;
      for (size_t i = part; i < part_end; ++i) any |= (logits[i] >= least);
      if (any == 0) continue;
      for (size_t i = part; i < part_end; ++i) {
        if (logits[i] < least) continue;
        candidates_.push_back({logits[i] / temperature, narrow<int32_t>(i)});
      }
    }
  }
  sort_best(k);
  candidates_.resize(k);
}

void Sampler::sort_best(size_t count) {
  count = std::min(count, candidates_.size());
  if (count <= num_sorted_) return;
  const auto first = candidates_.begin() + num_sorted_;
  const auto last = candidates_.begin() + count;
  if (count < candidates_.size()) std::nth_element(first, last - 1, candidates_.end(), kBetter);
  std::sort(first, last, kBetter);
  num_sorted_ = count;
}

void Sampler::truncate_top_p(double top_p) {
  sort_best(1);
  const double max = candidates_.front().x;
  double total = 0;
  for (const Candidate& c : candidates_) total += exp_negative(c.x - max);
  double mass = 0;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    if (i == num_sorted_) sort_best(std::max<size_t>(64, 4 * num_sorted_));
    mass += exp_negative(candidates_[i].x - max);
    if (mass < top_p * total) continue;
    candidates_.resize(i + 1);
    break;
  }
  num_sorted_ = std::min(num_sorted_, candidates_.size());
}

void Sampler::truncate_min_p(double min_p) {
  sort_best(1);
  const double floor = candidates_.front().x + std::log(min_p);
  const double max = candidates_.front().x;
  // The best is kept for any min_p.
  std::erase_if(candidates_, [&](const Candidate& c) { return c.x < floor && c.x < max; });
  // Erasing keeps the order, and the sorted tokens were the best, so they stay a prefix.
  num_sorted_ = std::min(num_sorted_, candidates_.size());
}

void Sampler::truncate_typical(double typical_p) {
  sort_best(1);
  const double max = candidates_.front().x;
  double total = 0;
  for (const Candidate& c : candidates_) total += std::exp(c.x - max);
  const double log_total = std::log(total);
  double entropy = 0;
  for (const Candidate& c : candidates_) {
    const double logprob = c.x - max - log_total;
    const double p = std::exp(logprob);
    if (p > 0) entropy -= p * logprob;
  }
  // Kept: those whose surprise is nearest to the expected one. Source: Meister et al. 2023,
  // "Locally typical sampling", equation 10.
  by_surprise_.clear();
  for (const Candidate& c : candidates_) {
    by_surprise_.emplace_back(std::abs(-(c.x - max - log_total) - entropy), c);
  }
  std::ranges::sort(by_surprise_, [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first < b.first : kBetter(a.second, b.second);
  });
  candidates_.clear();
  double mass = 0;
  for (const auto& [surprise, c] : by_surprise_) {
    candidates_.push_back(c);
    mass += std::exp(c.x - max) / total;
    if (mass >= typical_p) break;
  }
  num_sorted_ = 0;
}

int32_t Sampler::draw(const SampleArgs& args) const {
  const uint64_t key = kernels::noise_key(args.params->seed, args.sample, args.position);
  Best best;
  for (size_t begin = 0; begin < candidates_.size(); begin += kLogitRun) {
    const size_t end = std::min(candidates_.size(), begin + kLogitRun);
    double max = candidates_[begin].x;
    for (size_t i = begin; i < end; ++i) max = std::max(max, candidates_[i].x);
    const uint64_t least = least_bits(best.score, max);
    for (size_t i = begin; i < end; ++i) {
      const Candidate& c = candidates_[i];
      const uint64_t bits = kernels::noise_bits(key, c.id);
      if (bits >= least) best.consider(c.x, bits, c.id);
    }
  }
  return best.token;
}

// Draws from the tokens that are better than `worst`, or from all if it is not given. `worst` is
// not the best token.
int32_t Sampler::draw_from_all(std::span<const float> logits, const SampleArgs& args,
                               std::optional<int32_t> worst) const {
  const uint64_t key = kernels::noise_key(args.params->seed, args.sample, args.position);
  const double temperature = args.params->temperature;
  const float least_logit = worst ? logits[*worst] : -std::numeric_limits<float>::infinity();
  const auto is_in = [&](float logit, int32_t id) {
    return logit > least_logit || (logit == least_logit && id < *worst);
  };
  Best best;
  // The likeliest first: its score rules out most of the others.
  const int32_t first = argmax(logits);
  best.consider(logits[first] / temperature, kernels::noise_bits(key, first), first);
  for (size_t begin = 0; begin < logits.size(); begin += kLogitRun) {
    const size_t end = std::min(logits.size(), begin + kLogitRun);
    const float run = largest(logits.subspan(begin, end - begin));
    if (run < least_logit) continue;
    const uint64_t least = least_bits(best.score, run / temperature);
    for (size_t i = begin; i < end; ++i) {
      const auto id = narrow<int32_t>(i);
      const uint64_t bits = kernels::noise_bits(key, id);
      if (bits < least || !is_in(logits[i], id)) continue;
      best.consider(logits[i] / temperature, bits, id);
    }
  }
  return best.token;
}

// Top-p and min-p keep all tokens down to some worst one. So a token drawn from all tokens is also
// the draw among the kept ones if it is one of them, which top-p makes likely and two sums can
// verify. If it is not, only the better tokens remain candidates. Returns nothing if collecting is
// probably faster, or if the sums are too rough to decide.
std::optional<int32_t> Sampler::draw_then_cut(std::span<const float> logits,
                                              const SampleArgs& args) const {
  constexpr int kDraws = 2;
  constexpr double kLeastTopP = 0.5;
  constexpr double kDoubt = 1e-4;  // ten times the possible error of the sums
  const SamplingParams& params = *args.params;
  const bool top_k = params.top_k > 0 && std::cmp_less(params.top_k, logits.size());
  if (top_k || params.typical_p < 1) return std::nullopt;
  if (params.top_p >= 1 || params.top_p < kLeastTopP) return std::nullopt;
  const double temperature = params.temperature;
  const auto inverse = static_cast<float>(std::min(1 / temperature, 1e6));
  const int32_t best = argmax(logits);
  const float max = logits[best];
  const double top = max / temperature;
  std::optional<int32_t> worst;
  for (int i = 0; i < kDraws; ++i) {
    const int32_t token = draw_from_all(logits, args, worst);
    if (token == best) return token;
    worst = token;
    const double x = logits[token] / temperature;
    if (params.min_p > 0 && x < top + std::log(params.min_p) && x < top) continue;
    const RoughMass mass = rough_mass(logits, max, inverse, token);
    const double over = mass.before - params.top_p * mass.all;
    if (std::abs(over) < kDoubt * mass.all) return std::nullopt;
    if (over < 0) return token;
  }
  return std::nullopt;
}

}  // namespace hearth::engine
