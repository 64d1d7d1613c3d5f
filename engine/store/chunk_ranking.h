#pragma once
// Which stored chunk to evict first: everything that eviction needs to know of a database's rows,
// kept in memory so that an eviction does not scan them. Pure logic.
//
// Of one owner the least valuable chunk is evicted first (prefix_value), but never one that others
// continue, and no pinned one before its time is over. Each operation takes O(log chunks); a chunk
// takes about 200 bytes.

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "engine/kv/chain_hash.h"

namespace hearth::engine {

struct RankedChunk {
  int64_t row = 0;
  std::string owner;
  uint64_t bytes = 0;
  int32_t index = 0;
  int64_t used_s = 0;
  int64_t hits = 0;
  double recompute_us = 0;
  double value = 0;  ///< see prefix_value
  int64_t pinned_until_s = 0;
  Hash128 parent;  ///< names of the block before its first, and of its last
  Hash128 last;
};

class ChunkRanking {
 public:
  void clear();
  /// Adds a chunk, with its value at its last use.
  void add(RankedChunk chunk);
  /// All stored chunks were added: continues from the age of the last run. Chunks of less value
  /// were evicted, so that age is the least value of all.
  void resume();
  void remove(int64_t row);
  /// Evicted to make room: the owner's other chunks age by it.
  void evict(int64_t row);

  /// The value of a chunk of that owner that is used now.
  double value_now(const std::string& owner, int64_t hits, double recompute_us,
                   uint64_t bytes) const;
  int64_t hits(int64_t row) const {
    const auto at = chunks_.find(row);
    return at == chunks_.end() ? 0 : at->second.hits;
  }
  /// Counts a use and returns the new value; 0 for an unknown row.
  double use(int64_t row, int64_t now_s);
  /// Pins it until then. A pin is never shortened.
  void pin(int64_t row, int64_t until_s);

  /// The owner's chunk to evict first, or null. Valid until the next change.
  const RankedChunk* next(const std::string& owner, int64_t now_s);
  size_t size() const { return chunks_.size(); }
  /// Whether the row is there and its last block has that name.
  bool has(int64_t row, const Hash128& last) const {
    const auto at = chunks_.find(row);
    return at != chunks_.end() && at->second.last == last;
  }

 private:
  struct HashOfHash {
    size_t operator()(const Hash128& hash) const { return hash.low; }
  };
  /// Value, then last use, then the end of a chain.
  using Key = std::tuple<double, int64_t, int32_t, int64_t>;
  struct Owner {
    double age = 0;
    std::set<Key> may_go;
  };

  static Key key_of(const RankedChunk& chunk) {
    return {chunk.value, chunk.used_s, -chunk.index, chunk.row};
  }
  bool may_go(const RankedChunk& chunk) const;
  void offer(const RankedChunk& chunk);
  void withdraw(const RankedChunk& chunk) { owners_[chunk.owner].may_go.erase(key_of(chunk)); }
  void set_pinned(int64_t row, int64_t until_s);
  template <typename Fn>
  void for_each_named(const Hash128& last, const Fn& fn);

  std::unordered_map<int64_t, RankedChunk> chunks_;
  std::map<std::string, Owner> owners_;
  std::unordered_map<Hash128, int32_t, HashOfHash> children_;  ///< by the name they continue
  std::unordered_multimap<Hash128, int64_t, HashOfHash> by_last_;
  std::set<std::pair<int64_t, int64_t>> pinned_;  ///< until when, row
};

}  // namespace hearth::engine
