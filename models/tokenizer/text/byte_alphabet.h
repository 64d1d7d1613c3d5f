#pragma once
// The alphabet in which byte-level BPE vocabularies are written: one printable character for each
// byte. Bytes that are printable in Latin-1 stand for themselves; the other 68 are written U+0100
// and up, in order. Source: Radford et al. 2019 (GPT-2).

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace hearth::models {

/// Code point for each byte.
constexpr std::array<uint32_t, 256> byte_alphabet() {
  std::array<uint32_t, 256> codes = {};
  uint32_t next = 0x100;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool prints = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) ||
                        (byte >= 0xAE && byte <= 0xFF);
    codes[byte] = prints ? byte : next++;
  }
  return codes;
}

/// The bytes that an entry of such a vocabulary stands for. Characters outside the alphabet stay
/// unchanged.
std::string bytes_of_entry(std::string_view entry);

}  // namespace hearth::models
