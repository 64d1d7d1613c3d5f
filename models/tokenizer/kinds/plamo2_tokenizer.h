#pragma once
// tokenizer.ggml.model = "plamo2": PLaMo 2's Unigram. The segmentation with the best sum of scores
// is chosen; of equal ones, the one whose first token is longer, then whose second is, and so on.
// Text is not normalized. A character that is in no token costs kUnknownCost and becomes byte
// tokens. Source: Kudo 2018 (subword regularization); Preferred Networks 2025 (PLaMo 2), the
// published code.

#include <memory>

#include "kernels/base/result.h"
#include "models/tokenizer/tokenizer.h"

namespace hearth::models {

/// Reads tokenizer.ggml.{tokens, scores, token_type, add_bos_token} and the special ids. kCorrupt
/// names the key.
Result<std::unique_ptr<Tokenizer>> load_plamo2_tokenizer(const GgufFile& file);

}  // namespace hearth::models
