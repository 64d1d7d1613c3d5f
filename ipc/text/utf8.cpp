#include "ipc/text/utf8.h"

#include <cstdint>
#include <cstring>

#include "kernels/base/chars.h"

namespace hearth::ipc {
namespace {

/// Bytes of the valid character at the front of `s`, which is not empty; 0: there is none.
size_t character_bytes(std::string_view s) {
  const auto byte = [&](size_t i) { return byte_of(s[i]); };
  const auto follows = [&](size_t i) { return i < s.size() && (byte(i) & 0xC0) == 0x80; };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead < 0xC2) return 0;  // a continuation byte, or an overlong form of two bytes
  if (lead < 0xE0) return follows(1) ? 2 : 0;
  if (lead < 0xF0) {
    if (!follows(1) || !follows(2)) return 0;
    if (lead == 0xE0 && byte(1) < 0xA0) return 0;   // overlong
    if (lead == 0xED && byte(1) >= 0xA0) return 0;  // surrogates
    return 3;
  }
  if (lead < 0xF5) {
    if (!follows(1) || !follows(2) || !follows(3)) return 0;
    if (lead == 0xF0 && byte(1) < 0x90) return 0;   // overlong
    if (lead == 0xF4 && byte(1) >= 0x90) return 0;  // past U+10FFFF
    return 4;
  }
  return 0;
}

}  // namespace

size_t valid_utf8_prefix(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    // Prompts are mostly ASCII and may be megabytes: eight bytes at a time while that holds.
    uint64_t eight = 0;
    if (text.size() - at >= sizeof eight) {
      std::memcpy(&eight, text.data() + at, sizeof eight);
      if ((eight & 0x8080808080808080u) == 0) {
        at += sizeof eight;
        continue;
      }
    }
    const size_t n = character_bytes(text.substr(at));
    if (n == 0) return at;
    at += n;
  }
  return at;
}

std::string to_valid_utf8(std::string_view text) {
  std::string out;
  while (true) {
    const size_t valid = valid_utf8_prefix(text);
    out.append(text.substr(0, valid));
    if (valid == text.size()) return out;
    out.append("\xEF\xBF\xBD");
    text.remove_prefix(valid + 1);
  }
}

}  // namespace hearth::ipc
