#pragma once
// Character classes of code points, in one byte: those used by the tokenizers' splitting rules
// (\p{L}, \p{N}, \s, ...). Source: Unicode 15 general categories, from utf8proc.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernels/base/chars.h"

namespace hearth::models {

/// Bits of a code point's class byte.
enum CharClass : uint8_t {
  kUpper = 1,         ///< Lu, Lt
  kLower = 2,         ///< Ll
  kOtherLetter = 4,   ///< Lm, Lo
  kMark = 8,          ///< Mn, Mc, Me
  kNumber = 16,       ///< Nd, Nl, No
  kPunctuation = 32,  ///< Pc, Pd, Ps, Pe, Pi, Pf, Po
  kSymbol = 64,       ///< Sm, Sc, Sk, So
  kSpace = 128,       ///< White_Space, which is \s
};
inline constexpr uint8_t kLetter = kUpper | kLower | kOtherLetter;

/// 0 for a control, format, private or unassigned code point. `code` is at most U+10FFFF.
uint8_t char_classes(uint32_t code);

/// One character of a text, or its replacement.
struct Char {
  uint32_t code = 0;    ///< U+FFFD if the bytes are not UTF-8
  uint32_t bytes = 0;   ///< 0: past the end of the text
  uint8_t classes = 0;  ///< bits of CharClass

  bool is(uint8_t any_of) const { return (classes & any_of) != 0; }
  /// Whether there is a character and it is in none of these classes.
  bool is_none_of(uint8_t these) const { return bytes != 0 && (classes & these) == 0; }
};

namespace detail {

constexpr std::array<uint8_t, 128> ascii_classes() {
  std::array<uint8_t, 128> classes = {};
  for (size_t c = '!'; c <= '~'; ++c) classes[c] = kPunctuation;
  for (size_t c = '0'; c <= '9'; ++c) classes[c] = kNumber;
  for (size_t c = 'A'; c <= 'Z'; ++c) classes[c] = kUpper;
  for (size_t c = 'a'; c <= 'z'; ++c) classes[c] = kLower;
  for (const char c : {'$', '+', '<', '=', '>', '^', '`', '|', '~'}) classes[c] = kSymbol;
  for (const char c : {' ', '\t', '\n', '\v', '\f', '\r'}) classes[c] = kSpace;
  return classes;
}
inline constexpr std::array<uint8_t, 128> kAsciiClasses = ascii_classes();

Char wide_char_at(std::string_view text, size_t at);

}  // namespace detail

/// The character that begins at byte `at`; bytes == 0 at the end of the text. Invalid UTF-8 counts
/// as U+FFFD (a symbol) with the number of bytes that front_char() returns.
inline Char char_at(std::string_view text, size_t at) {
  if (at >= text.size()) return {};
  const auto byte = byte_of(text[at]);
  if (byte < 0x80) return {byte, 1, detail::kAsciiClasses[byte]};
  return detail::wide_char_at(text, at);
}

/// The end of the run of characters in `classes` that begins at `at`.
inline size_t skip(std::string_view text, size_t at, uint8_t classes) {
  for (Char c = char_at(text, at); c.is(classes); c = char_at(text, at)) at += c.bytes;
  return at;
}

/// The end of the run of characters in none of `classes` that begins at `at`.
inline size_t skip_none_of(std::string_view text, size_t at, uint8_t classes) {
  for (Char c = char_at(text, at); c.is_none_of(classes); c = char_at(text, at)) at += c.bytes;
  return at;
}

}  // namespace hearth::models
