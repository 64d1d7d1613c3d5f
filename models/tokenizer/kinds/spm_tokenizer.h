#pragma once
// tokenizer.ggml.model = "llama": SentencePiece's BPE as Llama 1 and 2, Mistral, TinyLlama and
// Gemma ship it. Text is split into characters. The adjacent pair whose joined text has the best
// score in the vocabulary is merged (leftmost on ties) until no pair can be merged. Characters that
// are not in the vocabulary become byte tokens. Internally, spaces are U+2581. Source: Kudo and
// Richardson 2018 (SentencePiece); Sennrich et al. 2016 (BPE).

#include <memory>

#include "kernels/base/result.h"
#include "models/tokenizer/tokenizer.h"

namespace hearth::models {

/// Reads tokenizer.ggml.{tokens, scores, token_type, add_bos_token, add_space_prefix} and the
/// special ids. kCorrupt names the key.
Result<std::unique_ptr<Tokenizer>> load_spm_tokenizer(const GgufFile& file);

/// tokenizer.ggml.model = "gemma4": the same, except that pairs merge in the order of
/// tokenizer.ggml.merges in place of tokenizer.ggml.scores, a run of newlines that is a token
/// becomes that token, and no space is put before a text.
Result<std::unique_ptr<Tokenizer>> load_listed_tokenizer(const GgufFile& file);

}  // namespace hearth::models
