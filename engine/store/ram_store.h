#pragma once
// A store in host memory, in front of the database, for devices with memory of their own: lookups
// come here first. Without a database it is the only store.
//
// A chunk is kept under the name of the chain before it, with all tokens up to its end, which are
// compared on every hit, because a name alone proves nothing. Eviction takes the chain used longest
// ago of the owner with the most bytes, last chunk first, and never a chunk used at the same time.
// Chunks that are pinned in the database are evicted last: the database has them, too, and the
// bound on memory holds. Used only by the store's thread.

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "engine/store/block_store.h"
#include "engine/store/published_rows.h"

namespace hearth::engine {

class RamStore final : public BlockStore {
 public:
  /// `below` may be null. Chunks take at most `budget_bytes`, tokens included.
  RamStore(KvLayout layout, uint64_t budget_bytes, std::unique_ptr<BlockStore> below);

  NamedChain name(Chain chain) const override;
  Result<std::vector<FoundChunk>> find(const NamedChain& chain, int32_t first_block,
                                       int32_t max_blocks) override;
  Result<ChunkData> load(const NamedChain& chain, FoundChunk* found) override;
  Result<void> save(std::span<const ChunkToSave> chunks) override;
  Result<bool> touch(const NamedChain& chain, int32_t index, int32_t num_blocks,
                     ChunkKind kind) override;
  Result<int32_t> pin(const NamedChain& chain, int32_t num_blocks, int64_t seconds) override;
  std::vector<PinnedChunk> pinned(size_t limit) override;
  void recycle(ChunkData spare) override;
  std::vector<CacheEvent> take_events() override;
  void tick() override;
  StoreStats stats() const override;

 private:
  using Tokens = std::shared_ptr<const std::vector<int32_t>>;
  struct Kept {
    Hash128 front;  ///< name of the chain before it
    Hash128 root;
    std::string owner;
    Tokens tokens;  ///< of a chain that it is part of, from the root on
    ChunkShape shape;
    ChunkData data;
    Hash128 last;        ///< name of its last block
    uint64_t bytes = 0;  ///< that it is charged
    uint64_t use = 0;
    bool pinned = false;
  };
  struct HashOfHash {
    size_t operator()(const Hash128& hash) const { return hash.low; }
  };
  /// Order of eviction: the oldest use first, then the highest index.
  struct Place {
    uint64_t use;
    int32_t from_end;
    int64_t row;
    auto operator<=>(const Place&) const = default;
  };

  struct Owner {
    uint64_t bytes = 0;
    std::set<Place> order;   ///< of what is not pinned
    std::set<Place> pinned;  ///< of what is
    std::set<Place>& of(const Kept& kept) { return kept.pinned ? pinned : order; }
  };

  Place place_of(int64_t row, const Kept& kept) const { return {kept.use, -kept.shape.index, row}; }
  /// What was compared last: the chunks of a chain have one list of tokens.
  struct Compared {
    const std::vector<int32_t>* tokens = nullptr;
    int32_t blocks = 0;
  };
  int32_t common_blocks(const Kept& kept, const NamedChain& chain, int32_t max_blocks,
                        Compared* last) const;
  void keep(const NamedChain& chain, const ChunkShape& shape, std::span<const std::byte> data);
  void use(int64_t row);
  void forget(int64_t row);
  bool make_room(uint64_t bytes);
  void set_pinned(int64_t row, Kept& kept, bool pinned);
  void learn_pins();
  Tokens shared_tokens(const std::vector<int32_t>& tokens);
  ChunkData memory_for(size_t bytes);

  const KvLayout layout_;
  const int32_t chunk_blocks_;
  const uint64_t budget_bytes_;
  const std::unique_ptr<BlockStore> below_;
  PublishedRows published_;
  std::unordered_map<int64_t, Kept> kept_;  ///< by row, below 0: the database's are above
  std::unordered_multimap<Hash128, int64_t, HashOfHash> by_front_;
  std::map<std::string, Owner> owners_;
  /// What the database has pinned, by the name of each chunk's last block.
  std::unordered_set<Hash128, HashOfHash> pins_;
  Tokens last_tokens_;  ///< of the chain that was kept last: its next chunk shares them
  int64_t next_row_ = -1;
  uint64_t uses_ = 0;
  uint64_t epoch_ = 0;
  StoreStats own_;
  std::vector<ChunkData> spare_;  ///< to load into
  ChunkData freed_;               ///< of the chunk evicted last: fresh pages cost more than copying
};

}  // namespace hearth::engine
