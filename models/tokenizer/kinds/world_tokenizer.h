#pragma once
// tokenizer.ggml.model = "rwkv": the World vocabulary of RWKV. From the front, the longest token
// that the rest of the text begins with. Tokens are byte strings, written with the escapes \t, \n,
// \r, \xHH and \C for the character C itself.
// Source: Peng et al. 2024 (Eagle and Finch), section 5, and its published code.

#include <memory>

#include "kernels/base/result.h"
#include "models/tokenizer/tokenizer.h"

namespace hearth::models {

/// Reads tokenizer.ggml.{tokens, token_type, add_bos_token} and the special ids. kCorrupt names the
/// key; every byte must be a token.
Result<std::unique_ptr<Tokenizer>> load_world_tokenizer(const GgufFile& file);

}  // namespace hearth::models
