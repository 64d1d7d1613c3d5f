#pragma once
// One character of UTF-8 at a time, from bytes that may be anything.

#include <cstddef>
#include <string_view>

namespace hearth::models {

struct Utf8Char {
  enum class Kind {
    kWhole,       ///< a valid character of `bytes` bytes
    kIncomplete,  ///< the text ends inside what may become one; `bytes` are there
    kInvalid,     ///< `bytes` bytes that cannot belong to any character
  };
  Kind kind = Kind::kInvalid;
  size_t bytes = 1;
};

/// Looks at the front of `text`, which is not empty. kInvalid spans the longest start of a valid
/// character (at least one byte), so replacing it by one U+FFFD is what Unicode recommends.
/// Source: The Unicode Standard, chapter 3, table 3-7 and "U+FFFD Substitution of Maximal
/// Subparts".
Utf8Char front_char(std::string_view text);

/// U+FFFD in UTF-8.
inline constexpr std::string_view kReplacementChar = "\xEF\xBF\xBD";

}  // namespace hearth::models
