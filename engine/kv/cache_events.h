#pragma once
// What a cache of KV blocks gains and loses, for programs that route requests to the daemon that
// has their prefix (docs/kv-events.md): plain data, and the log in which it is collected.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "engine/kv/chain_hash.h"

namespace hearth::engine {

enum class CacheTier {
  kPool,      ///< the device's memory
  kHost,      ///< host memory that backs a GPU's
  kDatabase,  ///< SQLite
};

/// Consecutive blocks of one chain became available, in one group of layers.
struct BlocksStored {
  CacheTier tier = CacheTier::kPool;
  int32_t group = 0;
  std::vector<uint64_t> hashes;    ///< names of the chain up to each block's end
  std::optional<uint64_t> parent;  ///< of the block before them; nothing: the chain begins here
  std::vector<int32_t> tokens;     ///< (hashes, block_size)
  std::string scope;               ///< its published name, if the chain begins here

  bool operator==(const BlocksStored&) const = default;
};
struct BlocksRemoved {
  CacheTier tier = CacheTier::kPool;
  int32_t group = 0;
  std::vector<uint64_t> hashes;

  bool operator==(const BlocksRemoved&) const = default;
};
using CacheEvent = std::variant<BlocksStored, BlocksRemoved>;

/// The integer that names a block in events.
inline uint64_t event_hash(const Hash128& hash) { return hash.low; }

/// Events in the order of what happened, joined where consecutive blocks make one.
class CacheEventLog {
 public:
  explicit CacheEventLog(CacheTier tier) : tier_(tier) {}

  struct Block {
    Hash128 hash;
    std::optional<Hash128> parent;    ///< nothing: it begins the chain of `scope`
    std::span<const int32_t> tokens;  ///< (block_size)
    std::string_view scope;
  };
  void stored(int32_t group, const Block& block);
  void removed(int32_t group, const Hash128& hash);

  bool empty() const { return events_.empty(); }
  /// The events since the last call.
  std::vector<CacheEvent> take();

 private:
  const CacheTier tier_;
  std::vector<CacheEvent> events_;
  /// Per group, the index of the last BlocksStored, which the next block may extend; -1 if there is
  /// none, or a removal came after it.
  std::vector<ptrdiff_t> open_;
};

}  // namespace hearth::engine
