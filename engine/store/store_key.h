#pragma once
// The checksum of stored chunks: XXH3-128 with a secret that each installation draws for itself. It
// finds damage, and rows that were not written here; it is no signature.

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/store/chunk.h"
#include "kernels/base/result.h"

namespace hearth::engine {

/// All that a row says about its chunk, the bytes and the counters apart.
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
  /// Reads `file` (192 bytes, mode 0600), or makes it. What is there and is no key is put aside and
  /// replaced: what was stored under the lost key is never found again, and evicted in time. kIo.
  static Result<StoreKey> open(const std::filesystem::path& file);

  /// For each chunk of the chain, the keyed hash of its root and of all tokens in front of the
  /// chunk: so a row answers for its whole chain, and not for a name that may be somebody else's.
  std::vector<Hash128> prefixes(const KvLayout& layout, const Chain& chain) const;
  /// Of a row and its bytes.
  Hash128 check(const Hash128& layout, const ChunkRow& row, std::span<const std::byte> data) const;
  /// The same where the bytes come in pieces. The key outlives it, in its place.
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
  static Result<std::optional<StoreKey>> read(const std::filesystem::path& file, bool* damaged);
  static Result<void> make(const std::filesystem::path& file);

  static constexpr size_t kBytes = 192;
  std::array<std::byte, kBytes> secret_{};
};

}  // namespace hearth::engine
