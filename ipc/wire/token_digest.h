#pragma once
// Digests of answers, by which a recording and its replay are compared.

#include <cstdint>
#include <span>
#include <string>

namespace hearth::ipc {

/// A digest of token ids that are added in order, in pieces of any size: FNV-1a, 64 bits. For
/// comparing answers, not against forgery.
class TokenDigest {
 public:
  void add(std::span<const int32_t> ids);
  /// 16 hexadecimal digits.
  std::string hex() const;

 private:
  uint64_t state_ = 0xcbf29ce484222325;
};

}  // namespace hearth::ipc
