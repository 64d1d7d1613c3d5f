#pragma once

#include <cstdint>
#include <optional>

#include "kernels/base/result.h"
#include "models/tokenizer/tokenizer.h"

namespace hearth::models {

/// The token that ends a text to be embedded: the separator for WordPiece and with add_sep_token,
/// EOS with add_eos_token. encode() does not append it, because it encodes prompts. kCorrupt names
/// the key.
Result<std::optional<int32_t>> load_text_end(const GgufFile& file, const Tokenizer& tokenizer);

}  // namespace hearth::models
