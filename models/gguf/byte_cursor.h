#pragma once
// Reads untrusted bytes front to back. Every read is checked against the remaining bytes; nothing
// is copied.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace hearth::models {

static_assert(std::endian::native == std::endian::little,
              "model files are little endian and read in place");

/// A value at any address, aligned or not.
template <typename T>
T load_unaligned(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

class ByteCursor {
 public:
  explicit ByteCursor(std::span<const std::byte> bytes) : bytes_(bytes) {}

  uint64_t offset() const { return offset_; }
  uint64_t remaining() const { return bytes_.size() - offset_; }

  /// False, with nothing consumed, if too few bytes remain.
  template <typename T>
  bool read(T* out) {
    if (remaining() < sizeof(T)) return false;
    *out = load_unaligned<T>(bytes_.data() + offset_);
    offset_ += sizeof(T);
    return true;
  }
  bool take(uint64_t count, std::span<const std::byte>* out) {
    if (remaining() < count) return false;
    *out = bytes_.subspan(offset_, count);
    offset_ += count;
    return true;
  }

 private:
  std::span<const std::byte> bytes_;
  uint64_t offset_ = 0;
};

inline std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace hearth::models
