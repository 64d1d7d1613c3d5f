#pragma once
// tokenizer.ggml.model = "bert": WordPiece as BERT and the embedding models after it ship it. Text
// is cleaned, converted to lower case and stripped of accents as the metadata asks, and split at
// spaces, punctuation and Han characters. Each word becomes the longest token at its front, then
// the longest continuation, and so on, or the unknown token if none fits. In GGUF, tokens that
// begin a word have the prefix U+2581, and continuations lack their "##".
// Source: Devlin et al. 2018 (BERT); Wu et al. 2016 (WordPiece).

#include <memory>

#include "kernels/base/result.h"
#include "models/tokenizer/tokenizer.h"

namespace hearth::models {

/// Reads tokenizer.ggml.{tokens, token_type, add_bos_token, normalizer.lowercase,
/// normalizer.strip_accents} and the special ids: bos_token_id is [CLS]. kCorrupt names the key.
/// encode() does not append [SEP].
Result<std::unique_ptr<Tokenizer>> load_wordpiece_tokenizer(const GgufFile& file);

}  // namespace hearth::models
