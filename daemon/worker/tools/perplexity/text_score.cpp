#include "daemon/worker/tools/perplexity/text_score.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/base/numbers.h"

namespace hearth::worker {
namespace {

/// ln sum exp
double log_sum(std::span<const float> logits) {
  const double most = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - most);
  return most + std::log(sum);
}

class Scorer {
 public:
  Scorer(LogitsRunner& model, LogitsRunner* reference, const models::Tokenizer& tokenizer,
         TextScore* score)
      : model_(model), reference_(reference), tokenizer_(tokenizer), score_(score) {}

  /// Runs a window and scores its tokens from `first` on; token `first` must have a predecessor.
  void window(std::span<const int32_t> tokens, size_t first) {
    model_.begin();
    if (reference_ != nullptr) reference_->begin();
    for (size_t begin = 0; begin + 1 < tokens.size(); begin += LogitsRunner::kStepTokens) {
      // The last token predicts nothing in the window.
      const size_t count = std::min<size_t>(LogitsRunner::kStepTokens, tokens.size() - 1 - begin);
      const auto logits = model_.step(tokens.subspan(begin, count));
      std::span<const float> wanted;
      if (reference_ != nullptr) wanted = reference_->step(tokens.subspan(begin, count));
      for (size_t i = 0; i < count; ++i) {
        if (begin + i + 1 < first) continue;
        take(row(logits, i), wanted.empty() ? wanted : row(wanted, i), tokens[begin + i + 1]);
      }
    }
  }

 private:
  std::span<const float> row(std::span<const float> logits, size_t i) const {
    const size_t vocab = model_.info().vocab_size;
    return logits.subspan(i * vocab, vocab);
  }

  void take(std::span<const float> logits, std::span<const float> wanted, int32_t id) {
    const double nll = -log_probability(logits, id);
    ++score_->num_tokens;
    score_->num_bytes += tokenizer_.piece(id).size();
    score_->nll += nll;
    score_->nll_squares += nll * nll;
    if (wanted.empty()) return;
    const double kl = kl_divergence(wanted, logits);
    ++score_->num_compared;
    score_->kl += kl;
    score_->kl_max = std::max(score_->kl_max, kl);
    const auto best = [](std::span<const float> x) {
      return std::ranges::max_element(x) - x.begin();
    };
    score_->same_best += best(logits) == best(wanted) ? 1 : 0;
  }

  LogitsRunner& model_;
  LogitsRunner* reference_;
  const models::Tokenizer& tokenizer_;
  TextScore* score_;
};

}  // namespace

double TextScore::mean_nll() const { return num_tokens > 0 ? nll / as_double(num_tokens) : 0; }

double TextScore::perplexity() const { return std::exp(mean_nll()); }

double TextScore::perplexity_error() const {
  if (num_tokens < 2) return 0;
  const auto n = as_double(num_tokens);
  const double variance = std::max(0.0, nll_squares / n - mean_nll() * mean_nll());
  return perplexity() * std::sqrt(variance / (n - 1));
}

double TextScore::bits_per_byte() const {
  return num_bytes > 0 ? nll / std::numbers::ln2 / as_double(num_bytes) : 0;
}

double log_probability(std::span<const float> logits, int32_t id) {
  return logits[id] - log_sum(logits);
}

double kl_divergence(std::span<const float> p_logits, std::span<const float> q_logits) {
  const double p_sum = log_sum(p_logits), q_sum = log_sum(q_logits);
  double kl = 0;
  for (size_t i = 0; i < p_logits.size(); ++i) {
    const double log_p = p_logits[i] - p_sum;
    kl += std::exp(log_p) * (log_p - (q_logits[i] - q_sum));
  }
  return std::max(0.0, kl);
}

Result<TextScore> score_text(LogitsRunner& model, LogitsRunner* reference,
                             const models::Tokenizer& tokenizer, const std::string& text,
                             const ScoreOptions& options, const ScoreWatch& watch) {
  if (options.context < 2) return Error::invalid("context: want at least 2 tokens", "context");
  const std::vector<int32_t> bos = tokenizer.encode("", {});
  std::vector<int32_t> tokens = tokenizer.encode(text, {.add_bos = false, .parse_special = false});
  if (options.max_tokens > 0 && std::ssize(tokens) > options.max_tokens) {
    tokens.resize(options.max_tokens);
  }
  const int64_t room = options.context - std::ssize(bos);
  if (options.stride < 1 || options.stride > room) {
    return Error::invalid(fmt::format("stride is {}, want 1 to {}", options.stride, room),
                          "stride");
  }
  const int64_t count = tokens.size();
  if (count + std::ssize(bos) < 2) {
    return Error::invalid("text: too short to predict anything", "text");
  }
  for (const int32_t id : tokens) {
    if (id < 0 || id >= model.info().vocab_size) {
      return Error::corrupt(
          fmt::format("token {} of the tokenizer, the model has {}", id, model.info().vocab_size));
    }
  }
  TextScore score;
  Scorer scorer(model, reference, tokenizer, &score);
  if (options.halves) {
    tokens.insert(tokens.begin(), bos.begin(), bos.end());
    const size_t size = options.context;
    if (tokens.size() < size) {
      return Error::invalid(
          fmt::format("text: {} tokens, want at least a window of {}", tokens.size(), size),
          "text");
    }
    for (size_t begin = 0; begin + size <= tokens.size(); begin += size) {
      std::vector<int32_t> window(tokens.begin() + begin, tokens.begin() + begin + size);
      std::ranges::copy(bos, window.begin());
      scorer.window(window, size / 2 + 1);
      if (watch && !watch(score, count)) return Error::cancelled("interrupted");
    }
    return score;
  }
  int64_t scored = bos.empty() ? 1 : 0;  // tokens of the text already scored, or not scorable
  std::vector<int32_t> window;
  while (scored < count) {
    // The first window scores all its tokens, each later one its last `stride`.
    const bool first = window.empty();
    const int64_t end = std::min(count, first ? room : scored + options.stride);
    const int64_t begin = std::max<int64_t>(0, end - room);
    window = bos;
    window.insert(window.end(), tokens.begin() + begin, tokens.begin() + end);
    scorer.window(window, bos.size() + (scored - begin));
    scored = end;
    if (watch && !watch(score, count)) return Error::cancelled("interrupted");
  }
  // A leading space added by the tokenizer is not part of the text's bytes.
  const bool added = tokenizer.adds_space_prefix() && !bos.empty() && !tokens.empty() &&
                     tokenizer.piece(tokens[0]).starts_with(' ');
  if (added) --score.num_bytes;
  return score;
}

}  // namespace hearth::worker
