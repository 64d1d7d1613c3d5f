#pragma once
// Saves prefixes to the store (the slow tier).
//
// A sequence that ends or is preempted offers its full blocks. They are copied out as fast as the
// store takes them, a few MiB per step, and only while they are cached: an offer holds no blocks.
//
// Owned by the engine thread.

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "engine/cost/step_cost.h"
#include "engine/kv/kv_cache.h"
#include "engine/scheduling/sequence.h"
#include "engine/tiers/store_link.h"

namespace hearth::engine {

class PrefixSaver {
 public:
  PrefixSaver(StoreLink& link, KvCache& kv, ModelRunner& runner);

  /// Called when a sequence ends or is preempted, while it still holds its blocks.
  void offer(const Sequence& seq);
  /// Before each step: copies out offers, up to `max_bytes`, as far as the store keeps up. True if
  /// something was copied: there may be more.
  bool pump(const StepCost& cost, uint64_t max_bytes);
  /// Copies out what is still offered, up to `max_bytes`, even if the store cannot keep up.
  void flush(const StepCost& cost, uint64_t max_bytes);
  void saved(ChunkSaved& saved);

  /// Offers that were given up because too many waited or their blocks were evicted.
  uint64_t offers_dropped() const { return offers_dropped_; }

 private:
  struct Offer {
    ChainId id = 0;
    Chain chain;  ///< moved out with the first chunk
    std::vector<NodeMark> marks;
    int32_t next_chunk = 0;
    std::vector<PinnedBlocks> pins;
    int32_t begun_blocks = 0;  ///< the sequence began after so many blocks, with a state from there
    bool opened = false;       ///< the store has `chain`
  };
  /// The next chunk of an offer, as far as its blocks are still cached.
  struct DueChunk {
    ChunkShape shape;
    std::span<const NodeMark> marks;
    bool stored = true;  ///< the store was given all its blocks before
  };

  DueChunk due_chunk(const Offer& offer) const;
  /// Copies the blocks of a chunk and sends it. Returns the bytes copied.
  uint64_t send_chunk(const Offer& offer, DueChunk due, const StepCost& cost);
  /// Copies and sends the states among the blocks of the offer's next chunk, and counts the use of
  /// the one that the sequence began with. Returns the bytes.
  uint64_t send_states(const Offer& offer, std::span<const NodeMark> marks);
  /// Copies out, or only touches, the first offer's next chunk. Returns the bytes copied.
  uint64_t send_next(const StepCost& cost);

  StoreLink& link_;
  KvCache& kv_;
  ModelRunner& runner_;
  std::deque<Offer> offers_;
  uint64_t bytes_under_way_ = 0;  ///< sent, and not yet written or dropped by the store
  uint64_t offers_dropped_ = 0;
};

}  // namespace hearth::engine
