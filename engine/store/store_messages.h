#pragma once
// The messages between the engine and the store's thread. Plain owned values. The engine chooses
// the ids, which are unique over finds and offers.

#include <cstdint>
#include <variant>
#include <vector>

#include "engine/store/block_store.h"
#include "engine/store/chunk.h"

namespace hearth::engine {

using ChainId = uint64_t;

// Engine -> store.

/// Asks for the stored chunks of the chain from block `first_block` on. Answered by ChainFound.
struct FindChain {
  ChainId id = 0;
  Chain chain;
  int32_t first_block = 0;
  int32_t max_blocks = 0;
  int32_t asker_cpu = -1;  ///< the engine thread's core; -1: not known
};
/// Answered by ChunkLoaded, in the order of asking.
struct LoadChunk {
  ChainId id = 0;
  FoundChunk chunk;
  ChunkData spare;  ///< memory for it; may be empty
};
/// Ends a find.
struct EndFind {
  ChainId id = 0;
};

/// Pins a number of blocks from the root for that long.
struct PinnedBlocks {
  int32_t num_blocks = 0;
  int64_t seconds = 0;
};

/// Chunks of this chain follow.
struct OfferChain {
  ChainId id = 0;
  Chain chain;
};
/// Answered by ChunkSaved.
struct OfferChunk {
  ChainId id = 0;
  ChunkShape shape;
  ChunkData data;
  double recompute_us = 0;  ///< to compute it anew; see prefix_value
};
/// A chunk offered or restored before was used again.
struct TouchChunk {
  ChainId id = 0;
  int32_t index = 0;
  int32_t num_blocks = 0;
  ChunkKind kind = ChunkKind::kKv;
};
struct EndOffer {
  ChainId id = 0;
  std::vector<PinnedBlocks> pins;
};
/// Asks for the pinned chunks, for a dashboard. Answered by PinnedChunks.
struct ListPinned {};

using StoreCommand = std::variant<FindChain, LoadChunk, EndFind, OfferChain, OfferChunk, TouchChunk,
                                  EndOffer, ListPinned>;

// Store -> engine.

struct ChainFound {
  ChainId id = 0;
  std::vector<FoundChunk> chunks;  ///< empty: a miss
};
struct ChunkLoaded {
  ChainId id = 0;
  bool ok = false;
  ChunkShape shape;  ///< as stored
  ChunkData data;
  int64_t load_us = 0;  ///< time that the store's thread took
};
/// The chunk was written or dropped, and its bytes were released.
struct ChunkSaved {
  ChainId id = 0;
  uint64_t bytes = 0;
  ChunkData spare;  ///< its memory
};
/// Sent every second or so, and after changes.
struct StoreReport {
  StoreStats stats;
};
struct PinnedChunks {
  std::vector<PinnedChunk> chunks;
};
/// What the store has gained and lost of published scopes.
struct StoreEvents {
  std::vector<CacheEvent> events;  ///< not empty
};

using StoreReply =
    std::variant<ChainFound, ChunkLoaded, ChunkSaved, StoreReport, PinnedChunks, StoreEvents>;

}  // namespace hearth::engine
