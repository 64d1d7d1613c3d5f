#pragma once
// String functions that count in characters, as Python does. All texts are valid UTF-8.

#include <cstdint>
#include <string>
#include <string_view>

namespace hearth::models::jinja {

/// A character and the number of its bytes; first_char: `text` is not empty.
struct Char {
  uint32_t code = 0;
  size_t bytes = 1;
};
Char first_char(std::string_view text);

size_t count_chars(std::string_view text);
/// Byte offset of character `index` (at most count_chars).
size_t char_offset(std::string_view text, size_t index);

bool is_space(uint32_t code);  ///< str.isspace
bool is_alpha(uint32_t code);
bool is_digit(uint32_t code);
bool is_upper(uint32_t code);
bool is_lower(uint32_t code);
std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string to_title(std::string_view text);
std::string capitalize(std::string_view text);

/// Strips blanks, or any of `chars`, from the ends.
std::string_view strip_left(std::string_view text);
std::string_view strip_right(std::string_view text);
inline std::string_view strip(std::string_view text) { return strip_left(strip_right(text)); }
std::string_view strip_left(std::string_view text, std::string_view chars);
std::string_view strip_right(std::string_view text, std::string_view chars);

/// Replaces & < > " ' by entities.
std::string escape_html(std::string_view text);

}  // namespace hearth::models::jinja
