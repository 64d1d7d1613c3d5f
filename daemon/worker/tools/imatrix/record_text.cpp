#include "daemon/worker/tools/imatrix/record_text.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

namespace hearth::worker {

Result<models::ImportanceSource> record_text(LogitsRunner& model,
                                             const models::Tokenizer& tokenizer,
                                             const std::string& text, const RecordOptions& options,
                                             const RecordWatch& watch) {
  const std::vector<int32_t> bos = tokenizer.encode("", {});
  const int64_t room = options.context - std::ssize(bos);
  if (room < 1) {
    return Error::invalid(
        fmt::format("context is {}, want at least {}", options.context, bos.size() + 1), "context");
  }
  std::vector<int32_t> tokens = tokenizer.encode(text, {.add_bos = false, .parse_special = false});
  if (options.max_tokens > 0 && std::ssize(tokens) > options.max_tokens) {
    tokens.resize(options.max_tokens);
  }
  if (tokens.empty()) return Error::invalid("text: it has 0 tokens, want at least one", "text");
  for (const int32_t id : tokens) {
    if (id >= 0 && id < model.info().vocab_size) continue;
    return Error::corrupt(
        fmt::format("token {} of the tokenizer, the model has {}", id, model.info().vocab_size));
  }
  models::ImportanceSource source;
  source.window_tokens = options.context;
  const int64_t total = std::ssize(tokens);
  for (int64_t begin = 0; begin < total; begin += room) {
    std::vector<int32_t> window = bos;
    window.insert(window.end(), tokens.begin() + begin,
                  tokens.begin() + std::min(total, begin + room));
    model.begin();
    for (size_t at = 0; at < window.size(); at += LogitsRunner::kStepTokens) {
      const size_t count = std::min<size_t>(LogitsRunner::kStepTokens, window.size() - at);
      model.step(std::span(window).subspan(at, count));
    }
    ++source.num_windows;
    if (watch && !watch(std::min(total, begin + room), total)) {
      return Error::cancelled("interrupted");
    }
  }
  return source;
}

}  // namespace hearth::worker
