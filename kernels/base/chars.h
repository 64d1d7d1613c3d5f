#pragma once
// Characters as bytes, the same in every locale and on every machine.

namespace hearth {

/// 0 to 255: what tables are indexed by and <cctype> takes.
constexpr unsigned char byte_of(char c) { return static_cast<unsigned char>(c); }

constexpr char ascii_lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

constexpr bool is_ascii_alnum(char c) {
  return (c >= '0' && c <= '9') || (ascii_lower(c) >= 'a' && ascii_lower(c) <= 'z');
}

}  // namespace hearth
