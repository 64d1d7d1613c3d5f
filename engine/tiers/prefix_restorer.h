#pragma once
// Restores prefixes from the store (the slow tier) into the KV cache.
//
// A request whose prompt continues past what is cached looks up the rest. While it is restoring,
// the scheduler passes over it. Chunks that arrive become cached blocks like any others, so the
// request then finds what it would have found had they been computed; they belong to no sequence
// and may be evicted. A request waits at most as long as recomputing would take, and not at all if
// loading takes longer, by rates measured here.
//
// Overlap. If neither loading nor computing is much faster (restore_plan.h), the request does not
// wait: it computes from the front while chunks are loaded from the end, into blocks of its own
// (AheadBlocks), until the two meet. What fails to load is computed.
//
// Owned by the engine thread. No I/O here: bytes travel in messages, and between messages and
// blocks by the op table's copies.

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/config.h"
#include "engine/cost/step_cost.h"
#include "engine/kv/kv_cache.h"
#include "engine/scheduling/sequence.h"
#include "engine/tiers/restore_plan.h"
#include "engine/tiers/store_link.h"

namespace hearth::engine {

class PrefixRestorer {
 public:
  /// `always`: restore what is stored without asking whether it pays; for tests.
  PrefixRestorer(StoreLink& link, KvCache& kv, ModelRunner& runner, bool always,
                 RestoreOverlap overlap);

  /// Looks up the continuation of the request's cached prefix, if that may pay. From then on the
  /// request is restoring.
  void look_up(LiveRequest& live, const StepCost& cost, int64_t now_us);
  void found(ChainFound& found, const StepCost& cost, int64_t now_us);
  void loaded(ChunkLoaded& loaded, int64_t now_us);
  /// The sequence has its blocks, and computes from now on.
  void admitted(Sequence& seq, const StepCost& cost);
  /// The request has ended.
  void forget(LiveRequest& live);

  /// Before each step: stops waiting for requests that took too long, and joins computed and loaded
  /// blocks where they meet.
  void pump(const StepCost& cost, int64_t now_us);
  /// A request waits for the store now.
  bool loading() const { return !restores_.empty(); }
  /// When the next request has waited long enough.
  std::optional<int64_t> next_deadline_us() const;
  /// Prompt tokens restored for requests that had started, since the last call.
  uint64_t take_joined_tokens() { return std::exchange(joined_tokens_, 0); }

 private:
  struct Restore {
    LiveRequest* live = nullptr;
    int64_t asked_us = 0;
    int64_t deadline_us = 0;
    int64_t load_began_us = 0;
    int32_t end_block = 0;           ///< blocks from the root after the restore
    std::deque<FoundChunk> to_load;  ///< not yet requested
    std::deque<FoundChunk> under_way;
    uint64_t bytes_under_way = 0;
    uint64_t bytes_loaded = 0;

    bool overlaps = false;     ///< computing goes on meanwhile; `to_load` is taken from its end
    bool admitted = false;     ///< its sequence was admitted since
    bool passed_over = false;  ///< a step has begun in which it could have been admitted
    bool failed = false;       ///< nothing more will arrive
    int32_t preemptions = 0;   ///< of the request, when it was admitted
    int32_t ahead_block = 0;   ///< loaded: blocks [ahead_block, end_block)
    double us_per_block = 0;   ///< expected, until one was measured
    int32_t blocks_loaded = 0;
    int64_t load_us = 0;  ///< time that the store took for them
  };
  using Restores = std::map<ChainId, Restore>;

  int32_t max_blocks(const LiveRequest& live) const;
  int32_t cached_blocks(const LiveRequest& live, int32_t max_blocks) const;
  /// How many blocks from the root will be usable with these chunks; takes out those that are not
  /// needed for it.
  int32_t choose(const LiveRequest& live, int32_t max_blocks,
                 std::vector<FoundChunk>& chunks) const;
  /// `load_us`: expected, for all chunks.
  RestoreWay way_of(const std::vector<FoundChunk>& chunks, const StoredPrefix& prefix,
                    double load_us, const StepCost& cost) const;
  /// Whether the chunks are one run from `cached` to `usable`, and hold all that is visible from
  /// there.
  bool unbroken(const std::vector<FoundChunk>& chunks, int32_t cached, int32_t usable) const;
  /// Blocks of a chunk that the restore uses; 0: the loaded chunk differs from the one that was
  /// found.
  int32_t usable_count(const Restore& restore, const FoundChunk& wanted,
                       const ChunkLoaded& loaded) const;
  void write(const ChunkShape& shape, int32_t count, std::span<const std::byte> data);
  void load(ChainId id, Restore& restore, FoundChunk chunk);
  void end(Restores::iterator at, int64_t now_us);

  // While the request waits.
  void begin_waiting(ChainId id, Restore& restore, const StepCost& cost, int64_t now_us);
  void load_next(ChainId id, Restore& restore);
  /// Puts a chunk into the cache. False: not all of it.
  bool insert(Restore& restore, const FoundChunk& wanted, ChunkLoaded& loaded);

  // While the request computes.
  /// False: the restore has ended.
  bool advance(ChainId id, Restore& restore, const StepCost& cost);
  /// Joins the loaded blocks to the computed ones if they have met. False: not yet.
  bool join(Restore& restore, const StepCost& cost);
  /// Adds a chunk before those loaded earlier.
  void insert_ahead(Restore& restore, const FoundChunk& wanted, ChunkLoaded& loaded);

  StoreLink& link_;
  KvCache& kv_;
  ModelRunner& runner_;
  const bool always_;
  const RestoreOverlap overlap_;

  Restores restores_;
  uint64_t bytes_under_way_ = 0;
  uint64_t joined_tokens_ = 0;
  double find_us_;                  ///< measured: an answer to FindChain
  double us_per_byte_;              ///< measured: loading, from asking to being cached
  std::vector<BlockWrite> writes_;  ///< scratch
};

}  // namespace hearth::engine
