#pragma once
// Computes a text with a model whose op table records its inputs.

#include <cstdint>
#include <functional>
#include <string>

#include "daemon/worker/tools/perplexity/logits_runner.h"
#include "models/quantize/importance.h"
#include "models/tokenizer/tokenizer.h"

namespace hearth::worker {

struct RecordOptions {
  int32_t context = 512;   ///< tokens of a window, BOS included
  int64_t max_tokens = 0;  ///< of the text; 0: all
};

/// Tokens done and in all; false: stop.
using RecordWatch = std::function<bool(int64_t done, int64_t total)>;

/// Computes the text in windows that do not overlap; each begins with BOS if the model uses one,
/// and the last may be shorter. Returns windows and their tokens. kInvalidArgument: context, or an
/// empty text; kCancelled.
Result<models::ImportanceSource> record_text(LogitsRunner& model,
                                             const models::Tokenizer& tokenizer,
                                             const std::string& text, const RecordOptions& options,
                                             const RecordWatch& watch);

}  // namespace hearth::worker
