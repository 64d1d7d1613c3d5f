#pragma once
// Numbers as little-endian bytes in strings, for messages and recordings.

#include <cstdint>
#include <string>

#include "kernels/base/chars.h"
#include "kernels/base/check.h"

namespace hearth {

/// Appends the low `bytes` bytes of the value.
inline void append_little_endian(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i) & 0xFF);
}
inline void append_u32(std::string& out, uint32_t value) { append_little_endian(out, value, 4); }
/// A size as a u32. Bounds far below it were checked before.
inline void append_size(std::string& out, size_t size) {
  HEARTH_CHECK(size <= UINT32_MAX, "size={}", size);
  append_little_endian(out, size, 4);
}
inline void append_u64(std::string& out, uint64_t value) { append_little_endian(out, value, 8); }

inline uint64_t load_little_endian(const char* from, int bytes) {
  uint64_t value = 0;
  for (int i = 0; i < bytes; ++i) {
    value |= uint64_t{byte_of(from[i])} << (8 * i);
  }
  return value;
}
inline uint32_t load_u32(const char* from) {
  return static_cast<uint32_t>(load_little_endian(from, 4));
}
inline uint64_t load_u64(const char* from) { return load_little_endian(from, 8); }

}  // namespace hearth
