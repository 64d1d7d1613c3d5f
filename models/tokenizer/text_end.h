#pragma once

#include <cstdint>
#include <optional>

#include "kernels/base/result.h"
#include "models/tokenizer/tokenizer.h"

namespace hearth::models {

/// What closes a text that is no prompt but is embedded: the separator of WordPiece (and where
/// add_sep_token asks for it), EOS where add_eos_token does. encode() does not put it there: it
/// makes prompts. kCorrupt names the key.
Result<std::optional<int32_t>> load_text_end(const GgufFile& file, const Tokenizer& tokenizer);

}  // namespace hearth::models
