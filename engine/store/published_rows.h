#pragma once
// The rows of published scopes (Chain::published) that a store has, and the events of their coming
// and going. A block may be in several rows: it is reported as stored with the first of them and as
// removed with the last. Rows that are not added here, because they are older than the store or of
// private scopes, cost nothing and are never reported.
//
// Used by the thread of the store.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "engine/kv/cache_events.h"
#include "engine/store/chunk.h"

namespace hearth::engine {

class PublishedRows {
 public:
  PublishedRows(CacheTier tier, const KvLayout& layout)
      : block_size_(layout.block_size), chunk_blocks_(layout.chunk_blocks()), log_(tier) {}

  /// A row holds this chunk of the chain, all of whose blocks the chain names. No effect if its
  /// scope is not published or the row is known.
  void added(int64_t row, const NamedChain& chain, const ChunkShape& shape);
  /// No effect for a row that is not known.
  void removed(int64_t row);
  /// All rows are gone.
  void clear();
  /// Removes the rows for which `there(row, name of its last block)` is false.
  template <typename Fn>
  void keep_if(const Fn& there) {
    std::vector<int64_t> gone;
    for (const auto& [row, known] : rows_) {
      if (!there(row, known.names.back())) gone.push_back(row);
    }
    for (const int64_t row : gone) removed(row);
  }

  /// Until commit() or roll_back(), changes wait to be reported or forgotten.
  void begin() { waiting_.emplace(); }
  void commit();
  void roll_back() { waiting_.reset(); }

  std::vector<CacheEvent> take_events() { return log_.take(); }

 private:
  struct Row {
    int32_t first_block = 0;
    std::vector<Hash128> names;  ///< (blocks + 1): that of the block before them first
    std::vector<uint64_t> present;
  };
  struct Added {
    int64_t row = 0;
    Row what;
    std::vector<int32_t> tokens;
    std::string scope;
  };
  struct Removed {
    int64_t row = 0;
  };
  using Change = std::variant<Added, Removed>;

  void apply(Change change);
  void report(const Added& added);
  void report(const Row& removed);
  template <typename Fn>
  static void for_each_block(const Row& row, const Fn& fn);

  const int32_t block_size_;
  const int32_t chunk_blocks_;
  CacheEventLog log_;
  std::map<int64_t, Row> rows_;
  /// How many rows hold a group's block, by its event_hash.
  std::map<std::pair<int32_t, uint64_t>, int32_t> rows_of_;
  std::optional<std::vector<Change>> waiting_;
};

}  // namespace hearth::engine
