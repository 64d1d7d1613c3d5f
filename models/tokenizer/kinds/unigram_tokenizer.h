#pragma once
// tokenizer.ggml.model = "t5": SentencePiece's Unigram as T5 and XLM-R ship it. Text is normalized
// with the compiled map of the metadata, spaces become U+2581, and the segmentation into tokens
// with the best sum of scores is chosen. Source: Kudo 2018 (subword regularization).

#include <memory>

#include "kernels/base/result.h"
#include "models/tokenizer/tokenizer.h"

namespace hearth::models {

/// Reads tokenizer.ggml.{tokens, scores, token_type, precompiled_charsmap, add_space_prefix,
/// remove_extra_whitespaces, add_bos_token} and the special ids. kCorrupt names the key. encode()
/// does not append EOS.
Result<std::unique_ptr<Tokenizer>> load_unigram_tokenizer(const GgufFile& file);

}  // namespace hearth::models
