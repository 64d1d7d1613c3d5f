#pragma once
// Metadata values of a GGUF file, viewed in place. Everything reachable from here was checked when
// the file was parsed.

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <span>
#include <string_view>
#include <type_traits>

#include "models/gguf/byte_cursor.h"

namespace hearth::models {

/// Ids as in the file.
enum class GgufType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

/// "u32", "string", ...; "unknown" for any other id.
std::string_view name(GgufType type);
/// Bytes of one value; 0 for strings, arrays and unknown ids.
uint32_t fixed_bytes(GgufType type);
bool is_integer(GgufType type);

struct GgufEntry {
  std::string_view key;
  GgufType type = GgufType::kU8;
  GgufType element_type = GgufType::kU8;  ///< kArray: of its elements; otherwise `type`
  uint64_t count = 1;                     ///< kArray: its elements; otherwise 1
  /// The value without type and length. In an array of strings, each has its length before its
  /// bytes.
  std::span<const std::byte> payload;
};

/// An integer of any width. If `negative`, `bits` is a negative number in two's complement.
struct GgufInteger {
  uint64_t bits = 0;
  bool negative = false;

  template <typename T>
  bool fits() const {
    if (negative) {
      const int64_t value = bits;
      return std::is_signed_v<T> && value >= static_cast<int64_t>(std::numeric_limits<T>::min());
    }
    return bits <= static_cast<uint64_t>(std::numeric_limits<T>::max());
  }
};
/// Requires is_integer(type) and fixed_bytes(type) readable bytes.
GgufInteger load_integer(GgufType type, const std::byte* from);

/// A numeric array of the file, read as T (int32_t or float); every element fits. Elements may be
/// unaligned in the file, so they are read by value. Valid as long as the file.
template <typename T>
class GgufNumbers {
 public:
  GgufNumbers() = default;
  explicit GgufNumbers(const GgufEntry& entry)
      : type_(entry.element_type), size_(entry.count), data_(entry.payload.data()) {}

  size_t size() const { return size_; }
  T operator[](size_t i) const {
    const std::byte* from = data_ + i * fixed_bytes(type_);
    if (type_ == GgufType::kF32) return static_cast<T>(load_unaligned<float>(from));
    if (type_ == GgufType::kF64) return static_cast<T>(load_unaligned<double>(from));
    return static_cast<T>(load_integer(type_, from).bits);
  }

 private:
  GgufType type_ = GgufType::kI32;
  size_t size_ = 0;
  const std::byte* data_ = nullptr;
};

/// An array of strings, read front to back. Valid as long as the file.
class GgufStrings {
 public:
  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = std::string_view;
    using difference_type = std::ptrdiff_t;
    using pointer = const std::string_view*;
    using reference = std::string_view;

    explicit Iterator(const std::byte* at) : at_(at) {}
    std::string_view operator*() const {
      return {reinterpret_cast<const char*>(at_ + sizeof(uint64_t)), load_unaligned<uint64_t>(at_)};
    }
    Iterator& operator++() {
      at_ += sizeof(uint64_t) + load_unaligned<uint64_t>(at_);
      return *this;
    }
    bool operator==(const Iterator& other) const = default;

   private:
    const std::byte* at_;
  };

  GgufStrings() = default;
  explicit GgufStrings(const GgufEntry& entry) : size_(entry.count), payload_(entry.payload) {}

  size_t size() const { return size_; }
  Iterator begin() const { return Iterator(payload_.data()); }
  Iterator end() const { return Iterator(payload_.data() + payload_.size()); }

 private:
  size_t size_ = 0;
  std::span<const std::byte> payload_;
};

}  // namespace hearth::models
