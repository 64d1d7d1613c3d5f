#pragma once
// tokenizer.ggml.model = "bert": WordPiece as BERT and the embedding models after it ship it. Text
// is cleaned, lowered and stripped of accents where the metadata asks for it, and cut at spaces,
// punctuation and Han characters; each word becomes the longest token at its front, then the
// longest that goes on from there, or the unknown token where there is none. In GGUF, tokens that
// begin a word have U+2581 in front, and the "##" of those that go on is gone.
// Source: Devlin et al. 2018 (BERT); Wu et al. 2016 (WordPiece).

#include <memory>

#include "kernels/base/result.h"
#include "models/tokenizer/tokenizer.h"

namespace hearth::models {

/// Reads tokenizer.ggml.{tokens, token_type, add_bos_token, normalizer.lowercase,
/// normalizer.strip_accents} and the special ids: bos_token_id is [CLS]. kCorrupt names the key.
/// encode() does not close with [SEP].
Result<std::unique_ptr<Tokenizer>> load_wordpiece_tokenizer(const GgufFile& file);

}  // namespace hearth::models
