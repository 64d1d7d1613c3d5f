#pragma once
// tokenizer.ggml.model = "llama": SentencePiece's BPE as Llama 1 and 2, Mistral, TinyLlama and
// Gemma ship it. Text is cut into characters, and the adjacent pair whose joined text has the best
// score in the vocabulary is joined (leftmost on ties) until none can be. Characters the vocabulary
// lacks become byte tokens. Spaces are written U+2581 inside. Source: Kudo and Richardson 2018
// (SentencePiece); Sennrich et al. 2016 (BPE).

#include <memory>

#include "kernels/base/result.h"
#include "models/tokenizer/tokenizer.h"

namespace hearth::models {

/// Reads tokenizer.ggml.{tokens, scores, token_type, add_bos_token, add_space_prefix} and the
/// special ids. kCorrupt names the key.
Result<std::unique_ptr<Tokenizer>> load_spm_tokenizer(const GgufFile& file);

}  // namespace hearth::models
