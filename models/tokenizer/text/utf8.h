#pragma once
// Reads one UTF-8 character at a time from arbitrary bytes, and writes one.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace hearth::models {

struct Utf8Char {
  enum class Kind {
    kWhole,       ///< a valid character of `bytes` bytes
    kIncomplete,  ///< the text ends within a possible character; `bytes` of it are present
    kInvalid,     ///< `bytes` bytes that cannot belong to any character
  };
  Kind kind = Kind::kInvalid;
  size_t bytes = 1;
};

/// Classifies the front of `text`, which is not empty. kInvalid spans the longest prefix of a valid
/// character (at least one byte), so replacing it by one U+FFFD follows Unicode's recommendation.
/// Source: The Unicode Standard, chapter 3, table 3-7 and "U+FFFD Substitution of Maximal
/// Subparts".
Utf8Char front_char(std::string_view text);

/// Appends a code point, at most U+10FFFF.
void append_char(std::string& out, uint32_t code);

/// U+FFFD in UTF-8.
inline constexpr std::string_view kReplacementChar = "\xEF\xBF\xBD";

}  // namespace hearth::models
