#include "models/tokenizer/text/utf8.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>

#include "kernels/base/chars.h"

namespace hearth::models {
namespace {

struct Lead {
  size_t length;  // bytes of the character; 0: cannot begin a character
  // Range of the second byte: narrower if it would begin overlong forms, surrogates or values past
  // U+10FFFF.
  uint8_t second_least;
  uint8_t second_most;
};

constexpr Lead lead_of(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Char front_char(std::string_view text) {
  const Lead lead = lead_of(byte_of(text[0]));
  if (lead.length == 0) return {Utf8Char::Kind::kInvalid, 1};
  for (size_t i = 1; i < lead.length; ++i) {
    if (i == text.size()) return {Utf8Char::Kind::kIncomplete, i};
    const auto byte = byte_of(text[i]);
    const uint8_t least = i == 1 ? lead.second_least : 0x80;
    const uint8_t most = i == 1 ? lead.second_most : 0xBF;
    if (byte < least || byte > most) return {Utf8Char::Kind::kInvalid, i};
  }
  return {Utf8Char::Kind::kWhole, lead.length};
}

void append_char(std::string& out, uint32_t code) {
  std::array<utf8proc_uint8_t, 4> bytes = {};
  const auto length = utf8proc_encode_char(code, bytes.data());
  out.append(bytes.begin(), bytes.begin() + length);
}

}  // namespace hearth::models
