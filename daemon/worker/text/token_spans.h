#pragma once
// Which bytes of a text each of its tokens stands for.

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "models/tokenizer/tokenizer.h"

namespace hearth::worker {

struct ByteSpan {
  size_t begin = 0;
  size_t end = 0;  ///< one past the last
  bool operator==(const ByteSpan&) const = default;
};

/// One per token of `ids`, which `tokenizer` made of `text`. A token that stands for no bytes (BOS,
/// a space put in front) has an empty span. From the first token on whose text differs from what is
/// there (an unknown character, a normalized word), nothing: guessing would be wrong sooner or
/// later. White space between the words of kinds that drop it belongs to no token.
std::vector<std::optional<ByteSpan>> token_spans(const models::Tokenizer& tokenizer,
                                                 std::span<const int32_t> ids,
                                                 std::string_view text);

}  // namespace hearth::worker
