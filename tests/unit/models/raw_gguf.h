#pragma once
// GGUF bytes written field by field, valid or not.

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "models/gguf/gguf_file.h"

namespace hearth::models {

class RawGguf {
 public:
  RawGguf(uint64_t num_tensors, uint64_t num_metadata, uint32_t version = 3) {
    put<uint32_t>(0x46554747);
    put(version);
    put(num_tensors);
    put(num_metadata);
  }

  template <typename T>
  RawGguf& put(T value) {
    const auto* from = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), from, from + sizeof(T));
    return *this;
  }
  RawGguf& text(std::string_view value) {
    put<uint64_t>(value.size());
    for (const char c : value) put(c);
    return *this;
  }
  RawGguf& key(std::string_view name, GgufType type) {
    return text(name).put(static_cast<uint32_t>(type));
  }
  template <typename T>
  RawGguf& entry(std::string_view name, GgufType type, T value) {
    return key(name, type).put(value);
  }
  RawGguf& tensor(std::string_view name, std::initializer_list<uint64_t> dims, uint32_t type,
                  uint64_t offset) {
    text(name).put(static_cast<uint32_t>(dims.size()));
    for (const uint64_t dim : dims) put(dim);
    return put(type).put(offset);
  }
  /// Pads to `alignment`, then this many bytes of tensor data.
  RawGguf& data(size_t count, size_t alignment = 32) {
    bytes_.resize((bytes_.size() + alignment - 1) / alignment * alignment + count);
    return *this;
  }

  const std::vector<std::byte>& bytes() const { return bytes_; }
  Result<GgufFile> parse() const { return GgufFile::parse(bytes_, "raw"); }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace hearth::models
