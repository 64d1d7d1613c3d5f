#include "ipc/text/base64.h"

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#include "kernels/base/chars.h"

namespace hearth::ipc {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::string_view kLetters =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr uint8_t kNone = 255;

constexpr std::array<uint8_t, 256> values() {
  std::array<uint8_t, 256> out{};
  out.fill(kNone);
  for (size_t i = 0; i < kLetters.size(); ++i) {
    out[byte_of(kLetters[i])] = static_cast<uint8_t>(i);
  }
  return out;
}
constexpr std::array<uint8_t, 256> kValues = values();

}  // namespace

std::string base64_encode(std::span<const std::byte> bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t left = bytes.size() - i;
    uint32_t group = std::to_integer<uint32_t>(bytes[i]) << 16;
    if (left > 1) group |= std::to_integer<uint32_t>(bytes[i + 1]) << 8;
    if (left > 2) group |= std::to_integer<uint32_t>(bytes[i + 2]);
    out += kLetters[group >> 18 & 63];
    out += kLetters[group >> 12 & 63];
    out += left > 1 ? kLetters[group >> 6 & 63] : '=';
    out += left > 2 ? kLetters[group & 63] : '=';
  }
  return out;
}

std::optional<std::vector<std::byte>> base64_decode(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  size_t padding = 0;
  while (padding < 2 && padding < text.size() && text[text.size() - 1 - padding] == '=') ++padding;
  std::vector<std::byte> out;
  out.reserve(text.size() / 4 * 3);
  for (size_t i = 0; i < text.size(); i += 4) {
    const size_t letters = i + 4 == text.size() ? 4 - padding : 4;
    uint32_t group = 0;
    for (size_t j = 0; j < 4; ++j) {
      uint8_t value = 0;
      if (j < letters) value = kValues[byte_of(text[i + j])];
      if (value == kNone) return std::nullopt;
      group = group << 6 | value;
    }
    for (size_t j = 0; j < 3; ++j) {
      const auto byte = static_cast<std::byte>(group >> (16 - 8 * j) & 255);
      if (j + 1 < letters) {
        out.push_back(byte);
      } else if (byte != std::byte{0}) {
        return std::nullopt;
      }
    }
  }
  return out;
}

std::string base64_of_floats(std::span<const float> values) {
  return base64_encode(std::as_bytes(values));
}

std::optional<std::vector<float>> floats_of_base64(std::string_view text) {
  const auto bytes = base64_decode(text);
  if (!bytes || bytes->size() % sizeof(float) != 0) return std::nullopt;
  std::vector<float> out(bytes->size() / sizeof(float));
  if (!out.empty()) std::memcpy(out.data(), bytes->data(), bytes->size());
  return out;
}

}  // namespace hearth::ipc
