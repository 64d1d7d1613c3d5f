#pragma once
// A fuzzer's bytes as choices. Every input is valid: where the bytes have run out, numbers are
// their lowest and texts are empty. Read from the front, so that a small change of the bytes is a
// small change of the meaning.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace hearth::fuzz {

class Input {
 public:
  Input(const uint8_t* data, size_t size)
      : rest_(reinterpret_cast<const char*>(data), data == nullptr ? 0 : size) {}

  uint8_t byte() {
    if (rest_.empty()) return 0;
    const auto out = static_cast<uint8_t>(rest_.front());
    rest_.remove_prefix(1);
    return out;
  }
  bool flag() { return (byte() & 1) != 0; }
  /// low to high, both included; at most 65536 apart.
  int number(int low, int high) {
    const auto width = static_cast<uint32_t>(high - low) + 1;
    const uint32_t value = width <= 256 ? byte() : byte() | static_cast<uint32_t>(byte()) << 8;
    return low + static_cast<int>(value % width);
  }
  /// Once in 256 bytes of noise: for rare choices.
  bool rarely() { return byte() == 0xA5; }
  /// Its length first.
  std::string text(int most) {
    const auto length = static_cast<size_t>(number(0, most));
    const std::string_view out = rest_.substr(0, length);
    rest_.remove_prefix(out.size());
    return std::string(out);
  }
  template <typename T>
  const T& pick(std::span<const T> from) {
    return from[static_cast<size_t>(number(0, static_cast<int>(from.size()) - 1))];
  }
  std::string_view rest() const { return rest_; }

 private:
  std::string_view rest_;
};

}  // namespace hearth::fuzz
