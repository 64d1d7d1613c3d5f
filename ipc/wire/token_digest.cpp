#include "ipc/wire/token_digest.h"

#include <fmt/core.h>

namespace hearth::ipc {

void TokenDigest::add(std::span<const int32_t> ids) {
  constexpr uint64_t kPrime = 0x100000001b3;
  for (const int32_t id : ids) {
    for (int shift = 0; shift < 32; shift += 8) state_ = (state_ ^ (id >> shift & 0xFF)) * kPrime;
  }
}

std::string TokenDigest::hex() const { return fmt::format("{:016x}", state_); }

}  // namespace hearth::ipc
