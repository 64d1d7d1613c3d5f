#pragma once
// The bytes of a text that each of its tokens stands for.

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "models/tokenizer/tokenizer.h"

namespace hearth::worker {

using models::ByteSpan;

/// One per token of `ids`, the tokens of `text` by `tokenizer`. A token that stands for no bytes
/// (BOS, an added leading space) has an empty span. From the first token whose text differs from
/// `text` (an unknown character, a normalized word), none has a span, because spans after it would
/// be unreliable. White space that the tokenizer drops between words belongs to no token.
std::vector<std::optional<ByteSpan>> token_spans(const models::Tokenizer& tokenizer,
                                                 std::span<const int32_t> ids,
                                                 std::string_view text);

}  // namespace hearth::worker
