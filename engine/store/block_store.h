#pragma once
// The interface of a store of blocks, as its thread uses it: synchronous, one database at a time.
// The engine never calls it directly (see store_thread.h); simulations use another implementation.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/kv/cache_events.h"
#include "engine/store/chunk.h"
#include "kernels/base/result.h"

namespace hearth::engine {

struct ChunkToSave {
  const NamedChain* chain = nullptr;
  const ChunkShape* shape = nullptr;
  std::span<const std::byte> data;
  double recompute_us = 0;  ///< time to recompute it; see prefix_value
};

enum class StoreState {
  kOff,       ///< not configured
  kWriting,   ///< holds the writer's lease
  kReading,   ///< another process holds it
  kDegraded,  ///< an error, see `last_error`; retried after a while
};

struct StoreStats {
  StoreState state = StoreState::kOff;
  uint64_t entries = 0;  ///< chunks
  uint64_t bytes = 0;    ///< of KV in them
  uint64_t budget_bytes = 0;
  uint64_t chunks_loaded = 0;
  uint64_t chunks_saved = 0;
  uint64_t chunks_evicted = 0;
  uint64_t chunks_dropped = 0;  ///< offered and not written: queue full, no lease, or an error
  uint64_t chunks_refused = 0;  ///< found, but damaged or written by another installation
  uint64_t pins_refused = 0;    ///< their owner has reached its bound of pinned bytes
  std::string last_error;
  /// Grows when saved chunks may be lost, so that they may be offered again.
  uint64_t epoch = 0;
  // The tier in host memory, in front of the database (ram_store.h).
  uint64_t ram_budget_bytes = 0;  ///< 0: none
  uint64_t ram_bytes = 0;
  uint64_t ram_pinned_bytes = 0;  ///< of them, of what is pinned on disk
  uint64_t ram_chunks = 0;
  uint64_t ram_loaded = 0;  ///< of chunks_loaded, those loaded from host memory
  uint64_t ram_evicted = 0;

  bool takes_offers() const { return state == StoreState::kWriting || ram_budget_bytes > 0; }
  bool answers() const { return takes_offers() || state == StoreState::kReading; }
};

/// A chunk that is pinned: it is not evicted until its time is over.
struct PinnedChunk {
  Hash128 last;  ///< name of its last block
  int32_t num_blocks = 0;
};

class BlockStore {
 public:
  virtual ~BlockStore() = default;

  virtual NamedChain name(Chain chain) const = 0;
  /// Chunks that continue the chain at block `first_block`, up to `max_blocks` from the root, in
  /// order and without a gap in full groups. With sliding groups, several may have the same index.
  /// Empty: a miss. Errors are misses too, and already counted.
  virtual Result<std::vector<FoundChunk>> find(const NamedChain& chain, int32_t first_block,
                                               int32_t max_blocks) = 0;
  /// The bytes of a found chunk, verified; `found->shape` becomes the stored one.
  virtual Result<ChunkData> load(const NamedChain& chain, FoundChunk* found) = 0;
  /// Writes them in one transaction; chunks that are already stored are only touched.
  virtual Result<void> save(std::span<const ChunkToSave> chunks) = 0;
  /// Counts a use of a stored chunk that was found in memory: of blocks, at least `num_blocks`; or
  /// of a state, that after exactly so many. False: it is not stored.
  virtual Result<bool> touch(const NamedChain& chain, int32_t index, int32_t num_blocks,
                             ChunkKind kind) = 0;
  /// Pins the chain's first `num_blocks` blocks, as far as they are stored, for that long. Returns
  /// how many are pinned: fewer at the owner's bound.
  virtual Result<int32_t> pin(const NamedChain& chain, int32_t num_blocks, int64_t seconds) = 0;
  /// At most `limit`; none if the store cannot list them.
  virtual std::vector<PinnedChunk> pinned(size_t /*limit*/) { return {}; }
  /// What it has gained and lost of published scopes (Chain::published) since the last call.
  virtual std::vector<CacheEvent> take_events() { return {}; }
  /// Memory that load may use.
  virtual void recycle(ChunkData) {}
  /// Call every second or so, and when idle: it keeps the lease, recovers from errors and catches
  /// up on bookkeeping.
  virtual void tick() = 0;
  virtual StoreStats stats() const = 0;
};

}  // namespace hearth::engine
