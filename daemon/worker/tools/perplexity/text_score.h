#pragma once
// How well a model foresees a text: negative log likelihood, as perplexity and as bits per byte,
// and how far it is from another model's forecasts.

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "daemon/worker/tools/perplexity/logits_runner.h"
#include "models/tokenizer/tokenizer.h"

namespace hearth::worker {

struct ScoreOptions {
  int32_t context = 512;   ///< tokens of a window, BOS included
  int32_t stride = 256;    ///< tokens that a window scores behind the first one
  int64_t max_tokens = 0;  ///< of the text; 0: all
  /// As llama-perplexity does: windows lie side by side, BOS takes the place of each one's first
  /// token, and of each the second half is scored. `stride` has no meaning then.
  bool halves = false;
};

struct TextScore {
  int64_t num_tokens = 0;  ///< scored
  int64_t num_bytes = 0;   ///< that they stand for
  double nll = 0;          ///< natural log, of all of them
  double nll_squares = 0;
  int64_t num_compared = 0;  ///< tokens, with a reference
  double kl = 0;             ///< sum of KL(reference || model) in nats
  double kl_max = 0;
  int64_t same_best = 0;  ///< tokens where both would choose the same next one

  double mean_nll() const;
  double perplexity() const;
  double perplexity_error() const;  ///< standard error
  double bits_per_byte() const;
};

/// ln softmax(logits)[id], in double.
double log_probability(std::span<const float> logits, int32_t id);
/// KL(p || q) in nats of the softmaxes of two rows of logits.
double kl_divergence(std::span<const float> p_logits, std::span<const float> q_logits);

/// How far it is: tokens scored, of all. False: stop.
using ScoreWatch = std::function<bool(const TextScore& so_far, int64_t tokens_in_all)>;

/// Each window begins with BOS where the model puts one in front. Every token of the text is scored
/// once, with at least context - stride tokens (BOS included) before it where the text has them;
/// the first one only behind a BOS token. (With `halves` as said there.) `reference`: null, or a
/// model of as many tokens whose forecasts are compared. kInvalidArgument: context, stride or an
/// empty text; kCancelled.
Result<TextScore> score_text(LogitsRunner& model, LogitsRunner* reference,
                             const models::Tokenizer& tokenizer, const std::string& text,
                             const ScoreOptions& options, const ScoreWatch& watch);

}  // namespace hearth::worker
