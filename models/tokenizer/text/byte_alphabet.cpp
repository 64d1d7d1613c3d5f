#include "models/tokenizer/text/byte_alphabet.h"

#include "models/tokenizer/text/char_classes.h"

namespace hearth::models {
namespace {

constexpr uint32_t kAlphabetEnd = 0x144;

// Byte for each code point below kAlphabetEnd; -1: none.
constexpr std::array<int16_t, kAlphabetEnd> byte_of_code() {
  std::array<int16_t, kAlphabetEnd> bytes = {};
  bytes.fill(-1);
  const std::array<uint32_t, 256> codes = byte_alphabet();
  for (size_t byte = 0; byte < codes.size(); ++byte)
    bytes[codes[byte]] = static_cast<int16_t>(byte);
  return bytes;
}
constexpr std::array<int16_t, kAlphabetEnd> kByteOfCode = byte_of_code();

}  // namespace

std::string bytes_of_entry(std::string_view entry) {
  std::string bytes;
  bytes.reserve(entry.size());
  for (size_t at = 0; at < entry.size();) {
    const Char c = char_at(entry, at);
    if (c.code < kAlphabetEnd && kByteOfCode[c.code] >= 0) {
      bytes.push_back(static_cast<char>(kByteOfCode[c.code]));
    } else {
      bytes += entry.substr(at, c.bytes);
    }
    at += c.bytes;
  }
  return bytes;
}

}  // namespace hearth::models
