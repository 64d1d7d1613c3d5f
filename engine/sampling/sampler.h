#pragma once
// Picks the next token of one sample from its row of logits.
//
// Order: logit bias -> penalties -> (banned ids, mask) -> temperature -> top-k -> top-p -> min-p ->
// typical -> draw. Each truncation looks at the distribution that the ones before it left,
// renormalized. Candidates are ordered by (logit, then lower id), so equal logits never make a
// result depend on anything else.
//
// The draw is addressed Gumbel-max: argmax of logit / T + g(seed, sample, position, token) over the
// candidates, where g is standard Gumbel noise computed from a hash of exactly these four numbers
// (`noise_bits`). That draws from softmax(logit / T) without a random stream: the same seed gives
// the same text whatever else runs, after a preemption, and after a restart. (Maddison, Tarlow and
// Minka 2014, section 2.)
//
// Fast for large vocabularies: top-k needs one scan with a bounded heap; top-p sorts candidates
// only around its border; the logarithms of the noise are computed only if it may win. Takes no
// memory after the first calls with the largest sizes, except for logprob lists. Owned by the
// engine thread.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/request.h"
#include "kernels/base/result.h"
#include "kernels/ops/draw.h"

namespace hearth::engine {

/// 64 uniform bits for one candidate (kernels/ops/draw.h): a mix chained over seed, sample and
/// position, then once more over the token.
uint64_t noise_bits(uint64_t seed, int32_t sample, int32_t position, int32_t token);
/// Standard Gumbel noise of those bits: -log(-log(u)), u = (top 52 bits + 0.5) / 2^52.
double gumbel(uint64_t bits);

struct SampleArgs {
  const SamplingParams* params = nullptr;
  std::span<const int32_t> history;  ///< prompt and output so far; penalties look at its end
  std::span<const int32_t> banned;   ///< ids that may not be drawn
  int32_t sample = 0;
  int32_t position = 0;  ///< absolute, of the token to be drawn
  /// Only these may be drawn: ids with bit `id % 64` of word `id / 64` set, and those in `also`,
  /// but none in `banned`. At least one id is left. Empty: all ids.
  std::span<const uint64_t> mask;
  std::span<const int32_t> also;
};

struct Sampled {
  int32_t token = 0;
  std::optional<float> logprob;
  std::vector<TokenLogprob> top_logprobs;
};

struct TokenProbability {
  int32_t token = 0;
  double probability = 0;
};

class Sampler {
 public:
  explicit Sampler(int32_t vocab_size);

  /// `logits` (vocab_size; ids beyond it in `args` are ignored) are changed while it runs and
  /// restored before it returns. kInternal when one is not a finite number: names the first such
  /// token.
  Result<Sampled> sample(std::span<float> logits, const SampleArgs& args);

  /// The same from the best logits of the row, if params.top_k is in 1 .. BestLogits::kCount and
  /// below the vocabulary's size, without bias, penalties, mask, bans and log probabilities. The
  /// token is the same, because no other logits matter then.
  Result<Sampled> sample(const kernels::BestLogits& best, const SampleArgs& args);

  /// The distribution that `sample` draws from: the tokens left after truncation, by ascending id.
  /// At temperature 0 one token is certain. Errors as above.
  Result<void> probabilities(std::span<float> logits, const SampleArgs& args,
                             std::vector<TokenProbability>* out);

  struct Score {
    float logprob = 0;               ///< log softmax(logits)[token]
    std::vector<TokenLogprob> best;  ///< the `num_best` best, best first
  };
  /// kInternal as above.
  Result<Score> score(std::span<const float> logits, int32_t token, int32_t num_best) const;

 private:
  struct Candidate {
    double x;  ///< logit / temperature
    int32_t id;
  };
  struct Changed {
    int32_t id;
    float before;
  };

  void set(std::span<float> logits, int32_t id, float value);
  void apply_bias_and_penalties(std::span<float> logits, const SampleArgs& args);
  void collect(std::span<const float> logits, const SamplingParams& params);
  void truncate(const SamplingParams& params);
  void restore(std::span<float> logits);
  int32_t draw_masked(std::span<const float> logits, const SampleArgs& args);
  void collect_from(std::span<const float> logits, float floor, double temperature);
  void collect_top_p(std::span<const float> logits, double top_p, double temperature);
  void collect_top_k(std::span<const float> logits, size_t k, double temperature);
  void sort_best(size_t count);
  void truncate_top_p(double top_p);
  void truncate_min_p(double min_p);
  void truncate_typical(double typical_p);
  int32_t draw(const SampleArgs& args) const;
  int32_t draw_from_all(std::span<const float> logits, const SampleArgs& args,
                        std::optional<int32_t> worst = {}) const;
  std::optional<int32_t> draw_then_cut(std::span<const float> logits, const SampleArgs& args) const;

  std::vector<Candidate> candidates_;
  size_t num_sorted_ = 0;          ///< candidates_[0, num_sorted_) are the best, best first
  std::vector<Candidate> border_;  ///< of top-p, and what lies in each of its bins
  std::vector<double> bins_;
  std::vector<float> maxima_;  ///< of columns of logits, of top-k
  std::vector<std::pair<double, Candidate>> by_surprise_;
  std::vector<Changed> changed_;
  std::vector<int32_t> counts_;  ///< per token id, of the penalty window; zero between calls
};

}  // namespace hearth::engine
