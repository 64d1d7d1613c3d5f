#pragma once
// How well a model predicts a text: negative log likelihood, as perplexity and as bits per byte,
// and the divergence from a reference model's predictions.

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
  int32_t stride = 256;    ///< tokens that each window after the first scores
  int64_t max_tokens = 0;  ///< of the text; 0: all
  /// As llama-perplexity does: windows do not overlap, BOS replaces the first token of each, and
  /// only the second half of each is scored. `stride` is ignored.
  bool halves = false;
};

struct TextScore {
  int64_t num_tokens = 0;  ///< scored
  int64_t num_bytes = 0;   ///< of the scored tokens
  double nll = 0;          ///< natural log, of all scored tokens
  double nll_squares = 0;
  int64_t num_compared = 0;  ///< tokens compared with the reference
  double kl = 0;             ///< sum of KL(reference || model) in nats
  double kl_max = 0;
  int64_t same_best = 0;  ///< tokens for which both predict the same next one

  double mean_nll() const;
  double perplexity() const;
  double perplexity_error() const;  ///< standard error
  double bits_per_byte() const;
};

/// ln softmax(logits)[id], in double.
double log_probability(std::span<const float> logits, int32_t id);
/// KL(p || q) in nats of the softmaxes of two rows of logits.
double kl_divergence(std::span<const float> p_logits, std::span<const float> q_logits);

/// Progress: the score so far and the number of tokens to score. False: stop.
using ScoreWatch = std::function<bool(const TextScore& so_far, int64_t tokens_in_all)>;

/// Each window begins with BOS if the model uses one. Every token of the text is scored once, with
/// at least context - stride tokens (BOS included) before it where the text has that many; the
/// first token only if a BOS precedes it. (`halves` differs as described there.) `reference`: null,
/// or a model with the same number of tokens, whose predictions are compared. kInvalidArgument:
/// context, stride or an empty text; kCancelled.
Result<TextScore> score_text(LogitsRunner& model, LogitsRunner* reference,
                             const models::Tokenizer& tokenizer, const std::string& text,
                             const ScoreOptions& options, const ScoreWatch& watch);

}  // namespace hearth::worker
