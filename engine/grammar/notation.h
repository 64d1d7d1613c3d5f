#pragma once
// What the notations of grammars (GBNF, Lark) write alike.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace hearth::engine {

/// The code point that the first `digits` characters of `text` give in hexadecimal; nothing if they
/// are not such digits, or the number is not that of a Unicode character.
std::optional<uint32_t> hex_char(std::string_view text, size_t digits);

struct RepeatCount {
  int32_t count = 0;
  size_t bytes = 0;  ///< of the number
};
/// The decimal number at the beginning of `text`; nothing: none, or one above kMaxGrammarRepeat.
std::optional<RepeatCount> repeat_count(std::string_view text);

}  // namespace hearth::engine
