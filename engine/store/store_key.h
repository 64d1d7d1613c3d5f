#pragma once
// The checksum of stored chunks: XXH3-128 with a random secret of the installation. It detects
// damage and rows that another installation wrote; it is not a signature.

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/store/chunk.h"
#include "kernels/base/result.h"

namespace hearth::engine {

/// The description of a chunk in its row, without the bytes and the counters.
struct ChunkRow {
  int64_t id = 0;
  std::string owner;
  Hash128 root, parent, first, last;  ///< `parent`: name of the block before the chunk, or root
  Hash128 prefix;                     ///< see StoreKey::prefixes
  ChunkShape shape;
  std::vector<int32_t> tokens;  ///< of the chunk
};

class StoreKey {
 public:
  /// Reads `file` (192 bytes, mode 0600), or makes it. An invalid file is set aside and replaced:
  /// chunks stored under the lost key are never found again, and are evicted in time.
  /// Errors: kIo.
  static Result<StoreKey> open(const std::filesystem::path& file);

  /// For each chunk of the chain, the keyed hash of its root and of all tokens before the chunk. So
  /// a row is valid for its whole chain only, and not for another chain with the same name.
  std::vector<Hash128> prefixes(const KvLayout& layout, const Chain& chain) const;
  /// The checksum of a row and its bytes.
  Hash128 check(const Hash128& layout, const ChunkRow& row, std::span<const std::byte> data) const;
  /// The same for bytes that come in pieces. The key outlives it and does not move.
  class Check {
   public:
    void add(std::span<const std::byte> bytes);
    Hash128 digest() const;

   private:
    friend class StoreKey;
    struct State;
    struct Free {
      void operator()(State* state) const;
    };
    std::unique_ptr<State, Free> state_;
  };
  Check begin_check(const Hash128& layout, const ChunkRow& row, size_t data_bytes) const;

 private:
  static constexpr size_t kBytes = 192;
  std::array<std::byte, kBytes> secret_{};
};

}  // namespace hearth::engine
