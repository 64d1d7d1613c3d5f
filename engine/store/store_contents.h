#pragma once
// The contents of a database, counted by owner, and eviction from it. Rows are removed only here,
// so that the counts agree with them.
//
// Eviction takes the least valuable chunk (prefix_value) of the owner with the most bytes, so no
// owner can flush the chunks of another while keeping more itself. A chunk that others continue
// stays as long as they do, and a pinned one until its time is over.

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "engine/store/chunk_ranking.h"
#include "engine/store/published_rows.h"
#include "kernels/database/sqlite.h"

namespace hearth::engine {

/// Bytes of KV; 0: no bound of that kind.
struct StoreBounds {
  uint64_t budget_bytes = 0;        ///< of all owners
  uint64_t owner_budget_bytes = 0;  ///< of each owner
  uint64_t owner_pinned_bytes = 0;  ///< of each owner's pinned chunks: further pins are refused
};

/// Copied before a transaction, and restored if it fails.
struct StoreCounts {
  uint64_t entries = 0;
  uint64_t bytes = 0;
  uint64_t evicted = 0;  ///< since the store was made
  std::map<std::string, uint64_t> bytes_of_owner;
};

class StoreContents {
 public:
  /// `published`: learns of the rows that are removed; null: not needed.
  explicit StoreContents(const StoreBounds& bounds, PublishedRows* published = nullptr)
      : bounds_(bounds), published_(published) {}

  /// Called for each connection: counts the rows. Call `close` before the connection ends.
  Result<void> open(Database& database);
  void close();
  Result<void> recount();

  const StoreCounts& counts() const { return counts_; }
  /// Changes up to commit() or roll_back() are of one transaction, and reported when it is over.
  /// Returns what to roll back to.
  StoreCounts begin();
  void commit();
  void roll_back(StoreCounts to);
  /// The database is gone, and all rows with it.
  void lost();
  /// The value of a chunk that is written now.
  double value_now(const std::string& owner, int64_t hits, double recompute_us,
                   uint64_t bytes) const {
    return ranking_.value_now(owner, hits, recompute_us, bytes);
  }
  /// A row was written that holds this chunk of the chain.
  void added(RankedChunk chunk, const NamedChain& chain, const ChunkShape& shape);
  Result<void> remove(int64_t row);
  /// Counted uses of the row; 0 if it is not known.
  int64_t hits(int64_t row) const { return ranking_.hits(row); }
  /// Counts a use.
  Result<void> touch(int64_t row, int64_t now_s);
  /// Evicts until the bounds are kept, or only pinned chunks are left.
  Result<void> evict(int64_t now_s);
  /// False: the owner's pins would pass their bound. A pin is never shortened.
  Result<bool> pin(int64_t row, int64_t until_s, int64_t now_s);

 private:
  /// False: none of the owner's chunks may be evicted.
  Result<bool> evict_one(const std::string& owner, int64_t now_s);
  Result<bool> evict_of_fullest(int64_t now_s);
  void uncount(const std::string& owner, uint64_t bytes);

  void add(RankedChunk chunk);
  void note_removed(int64_t row);

  const StoreBounds bounds_;
  PublishedRows* const published_;
  StoreCounts counts_;
  Database* database_ = nullptr;
  Statement erase_, evict_, pinned_until_, pinned_bytes_, pin_, touch_;
  ChunkRanking ranking_;
  bool ranked_ = false;  ///< the ranking agrees with the rows
};

}  // namespace hearth::engine
