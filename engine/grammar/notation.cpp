#include "engine/grammar/notation.h"

#include <charconv>

#include "engine/grammar/grammar.h"

namespace hearth::engine {

std::optional<uint32_t> hex_char(std::string_view text, size_t digits) {
  const std::string_view hex = text.substr(0, digits);
  uint32_t code = 0;
  const auto read = std::from_chars(hex.data(), hex.data() + hex.size(), code, 16);
  const bool surrogate = code >= 0xD800 && code < 0xE000;
  if (hex.size() < digits || read.ptr != hex.data() + digits || code > 0x10FFFF || surrogate) {
    return std::nullopt;
  }
  return code;
}

std::optional<RepeatCount> repeat_count(std::string_view text) {
  RepeatCount out;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), out.count);
  if (read.ec != std::errc() || out.count < 0 || out.count > kMaxGrammarRepeat) return std::nullopt;
  out.bytes = read.ptr - text.data();
  return out;
}

}  // namespace hearth::engine
