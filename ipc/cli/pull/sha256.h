#pragma once
// SHA-256 (FIPS 180-4, section 6.2), incremental.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace hearth::cli {

class Sha256 {
 public:
  void update(std::span<const std::byte> bytes);
  /// The hash as 64 lower-case hex digits. Nothing may be added afterwards.
  std::string finish();

 private:
  void block(const std::byte* bytes);

  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::byte, 64> pending_{};
  uint64_t num_bytes_ = 0;
};

}  // namespace hearth::cli
