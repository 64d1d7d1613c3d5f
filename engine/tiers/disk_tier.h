#pragma once
// The engine's side of the slow tier: what is asked of the store's thread, what is given to it, and
// who waits for it. It does no I/O: bytes travel in messages, and between messages and blocks by
// the op table's copies.
//
// In. A request whose prompt goes on behind what is cached asks for the rest. While it is restoring
// the scheduler passes over it. Chunks that come become cached blocks like any others, so that what
// the request then finds is what it would have found had they been computed; they belong to nobody
// and may be evicted. It waits at most as long as recomputing would take, and not at all where
// loading takes longer, by rates measured here.
//
// Beside computing. Where neither takes much longer than the other (restore_plan.h), the request
// does not wait: it computes from the front while chunks are loaded from the end, into blocks of
// its own (AheadBlocks), until they meet. What fails to come is computed.
//
// Out. A sequence that ends offers its full blocks. They are copied out as fast as the store takes
// them, a few MiB per step, and only while they are cached: offers hold no blocks.
//
// On a device with memory of its own, blocks travel beside the steps
// (engine/steps/block_traffic.h): what is offered is sent when its bytes have arrived, in the order
// of offering, and memory that blocks come from is used again when they have left it.
//
// Owned by the engine thread.

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/config.h"
#include "engine/cost/step_cost.h"
#include "engine/kv/kv_cache.h"
#include "engine/scheduling/sequence.h"
#include "engine/steps/model_runner.h"
#include "engine/steps/step_record.h"
#include "engine/store/store_messages.h"
#include "kernels/base/mailbox.h"

namespace hearth::engine {

class DiskTier {
 public:
  /// `always`: restore what is there without asking whether it pays; for tests.
  DiskTier(KvLayout layout, KvCache& kv, ModelRunner& runner, Mailbox<StoreCommand>& store,
           bool always, RestoreOverlap overlap);
  ~DiskTier();

  /// Makes ready the memory that one more chunk comes in. False: enough is.
  bool warm_up();
  /// Asks for what follows the request's cached prefix; it is restoring from here on, or not.
  void ask(LiveRequest& live, const StepCost& cost, int64_t now_us);
  /// The sequence has its blocks, and computes from now on.
  void admitted(Sequence& seq, const StepCost& cost);
  /// The request has ended.
  void forget(LiveRequest& live);
  /// The sequence, which still holds its blocks, has come to its end.
  void offer(const Sequence& seq);
  void handle(StoreReply& reply, const StepCost& cost, int64_t now_us);

  /// Before each step. Lets go those that have waited long enough, joins what was computed and what
  /// was loaded where they meet, and copies out offers, up to `max_bytes`. True where something was
  /// copied: there may be more.
  bool pump(const StepCost& cost, int64_t now_us, uint64_t max_bytes);
  /// A request waits for the store just now.
  bool loading() const { return !restores_.empty(); }
  /// When the next one has waited long enough.
  std::optional<int64_t> next_deadline_us() const;
  /// Copies out what is still offered, up to `max_bytes`, whatever is under way.
  void flush(const StepCost& cost, uint64_t max_bytes);
  /// Prompt tokens restored for requests that had started, since the last call.
  uint64_t take_joined_tokens() { return std::exchange(joined_tokens_, 0); }

  /// The store's last report, with the offers that were given up here.
  StoreStats stats() const;
  int32_t chunk_blocks() const { return chunk_blocks_; }
  /// Asks the store which chunks are pinned; `pinned` tells what it said last.
  void ask_pinned();
  const std::vector<PinnedChunk>& pinned() const { return pinned_; }
  /// From now on blocks that move between tiers are noted there; null: nowhere.
  void note_moves(std::vector<MovedBlock>* moved) { moved_ = moved; }

 private:
  struct Restore {
    LiveRequest* live = nullptr;
    int64_t asked_us = 0;
    int64_t deadline_us = 0;
    int64_t load_began_us = 0;
    int32_t end_block = 0;          ///< blocks from the root that shall be there
    std::deque<FoundChunk> to_ask;  ///< not yet asked for
    std::deque<FoundChunk> under_way;
    uint64_t bytes_under_way = 0;
    uint64_t bytes_loaded = 0;

    bool beside = false;       ///< computing goes on meanwhile; `to_ask` is taken from its end
    bool admitted = false;     ///< it does
    bool passed_over = false;  ///< a step has begun in which it could have been admitted
    bool failed = false;       ///< nothing more comes
    int32_t preemptions = 0;   ///< of the request, when it was admitted
    int32_t ahead_block = 0;   ///< loaded from here to the end
    double us_per_block = 0;   ///< before any was measured
    int32_t blocks_loaded = 0;
    int64_t load_us = 0;  ///< that the store took for them
  };
  struct Offer {
    ChainId id = 0;
    Chain chain;  ///< moved out with the first chunk
    std::vector<NodeMark> marks;
    int32_t next_chunk = 0;
    std::vector<PinnedBlocks> pins;
    bool opened = false;
  };

  void on(ChainFound& found, const StepCost& cost, int64_t now_us);
  void on(ChunkLoaded& loaded, const StepCost& cost, int64_t now_us);
  void on(ChunkSaved& saved, const StepCost& cost, int64_t now_us);
  void on(StoreReport& report, const StepCost& cost, int64_t now_us);
  void on(PinnedChunks& pinned, const StepCost& cost, int64_t now_us);

  /// How many blocks from the root will be usable with these chunks; takes out those that are not
  /// needed for it.
  int32_t choose(const LiveRequest& live, int32_t max_blocks,
                 std::vector<FoundChunk>& chunks) const;
  bool take(Restore& restore, const FoundChunk& wanted, ChunkLoaded& loaded);
  /// Whether the chunks are one run from `cached` to `usable`, and hold all that is seen from
  /// there.
  bool unbroken(const std::vector<FoundChunk>& chunks, int32_t cached, int32_t usable) const;
  void land(Restore& restore, const FoundChunk& wanted, ChunkLoaded& loaded);
  void write(const ChunkShape& shape, int32_t count, std::span<const std::byte> data);
  void load_alone(ChainId id, Restore& restore, const StepCost& cost, int64_t now_us);
  /// False: it has come to its end.
  bool advance(ChainId id, Restore& restore, const StepCost& cost);
  void ask_for_chunks(ChainId id, Restore& restore);
  void end(std::map<ChainId, Restore>::iterator at, int64_t now_us);
  int32_t max_blocks(const LiveRequest& live) const;
  size_t max_chunk_bytes() const;
  ChunkData take_spare();
  void keep_spare(ChunkData data);
  /// Of a chunk whose bytes were taken, or are being copied.
  void let_go(ChunkData data);
  /// Posts it when all copies started so far have ended, behind what was sent before.
  void send(StoreCommand command);
  /// Looks at the copies under way.
  void settle();
  /// Copies one chunk of the offer, or touches it. Returns the bytes copied.
  uint64_t copy_out(Offer& offer, const StepCost& cost);
  void note_moved(int32_t group, int32_t block) {
    if (moved_ != nullptr && moved_->size() < StepRecorder::kMaxMoved) {
      moved_->push_back({group, block});
    }
  }

  const KvLayout layout_;
  const int32_t chunk_blocks_;
  KvCache& kv_;
  ModelRunner& runner_;
  Mailbox<StoreCommand>& store_;
  const bool always_;
  const RestoreOverlap overlap_;

  ChainId next_id_ = 1;
  std::map<ChainId, Restore> restores_;
  std::deque<Offer> offers_;
  uint64_t offered_bytes_under_way_ = 0;
  uint64_t loading_bytes_under_way_ = 0;
  uint64_t offers_dropped_ = 0;
  uint64_t joined_tokens_ = 0;
  StoreStats stats_;
  bool reported_ = false;
  double find_us_;                  ///< measured: an answer to FindChain
  double us_per_byte_;              ///< measured: loading, from asking to being cached
  std::vector<BlockWrite> writes_;  ///< scratch
  std::vector<PinnedChunk> pinned_;
  bool pinned_asked_ = false;
  std::vector<MovedBlock>* moved_ = nullptr;
  std::vector<ChunkData> spare_;  ///< memory of chunks that were taken, for the next ones
  template <typename T>
  struct Behind {
    uint64_t mark;
    T what;
  };
  std::deque<Behind<StoreCommand>> outgoing_;
  std::deque<Behind<ChunkData>> leaving_;  ///< taken, and not all of it copied yet
};

}  // namespace hearth::engine
