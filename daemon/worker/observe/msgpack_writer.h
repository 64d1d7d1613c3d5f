#pragma once
// Writes msgpack: each value in its shortest form. Source: msgpack's specification of 2017.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "kernels/base/little_endian.h"

namespace hearth::worker {

class MsgpackWriter {
 public:
  /// So many values follow.
  void array(size_t size) { head(size, 0x90, 15, 0xDC); }
  /// So many pairs of key and value follow.
  void map(size_t size) { head(size, 0x80, 15, 0xDE); }
  void nil() { byte(0xC0); }
  void number(uint64_t value) {
    if (value < 128) return byte(value);
    const int bytes = value < 256 ? 0 : value < 65536 ? 1 : value <= UINT32_MAX ? 2 : 3;
    byte(0xCC + bytes);
    big_endian(value, 1 << bytes);
  }
  void text(std::string_view value) {
    if (value.size() > 31 && value.size() < 256) {
      byte(0xD9);
      byte(value.size());
    } else {
      head(value.size(), 0xA0, 31, 0xDA);
    }
    out_ += value;
  }

  std::string take() { return std::move(out_); }

 private:
  /// `shortest` plus the size, up to `most`; else the form of 16 bits, or that of 32 after it.
  void head(size_t size, uint8_t shortest, size_t most, uint8_t longer) {
    if (size <= most) return byte(shortest + size);
    const bool wide = size > UINT16_MAX;
    byte(longer + (wide ? 1 : 0));
    big_endian(size, wide ? 4 : 2);
  }
  void big_endian(uint64_t value, int bytes) {
    while (bytes-- > 0) byte(value >> 8 * bytes);
  }
  void byte(uint64_t value) { append_little_endian(out_, value, 1); }

  std::string out_;
};

}  // namespace hearth::worker
