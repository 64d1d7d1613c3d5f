#pragma once
// The engine's connection to the store's thread, shared by PrefixRestorer and PrefixSaver: the
// mailbox to it, the memory that chunks travel in, and what the store reported last.
//
// On a device with memory of its own, blocks are copied alongside the steps
// (engine/steps/block_traffic.h). A command that carries such bytes is posted once its copies have
// ended, in the order of sending, and a buffer that is being copied from is used again after that.
//
// Owned by the engine thread.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "engine/steps/model_runner.h"
#include "engine/steps/step_record.h"
#include "engine/store/store_messages.h"
#include "kernels/base/mailbox.h"

namespace hearth::engine {

class StoreLink {
 public:
  StoreLink(KvLayout layout, ModelRunner& runner, Mailbox<StoreCommand>& store);
  ~StoreLink();  ///< waits for the copies in progress

  const KvLayout& layout() const { return layout_; }
  int32_t block_size() const { return layout_.block_size; }
  int32_t chunk_blocks() const { return chunk_blocks_; }
  ChainId new_id() { return next_id_++; }

  void post(StoreCommand command) { store_.post(std::move(command)); }
  /// Posts it when all copies started so far have ended, after what was sent before.
  void post_after_copies(StoreCommand command);
  /// Posts the commands whose copies have ended since. True if more commands still wait.
  bool post_copied();
  void wait_for_copies();

  /// Memory for one chunk; empty if none is spare.
  ChunkData take_buffer();
  void keep_buffer(ChunkData buffer);
  /// Keeps it once the copies started so far have ended: they may read from it.
  void keep_buffer_after_copies(ChunkData buffer);
  /// Prepares the memory of one more chunk. False: there is enough.
  bool warm_up();

  /// Until its first report, the store is assumed to answer and to accept offers.
  bool answers() const { return !reported_ || stats_.answers(); }
  bool takes_offers() const { return !reported_ || stats_.takes_offers(); }
  const StoreStats& stats() const { return stats_; }
  /// True: the store was replaced, and may not hold the blocks it was given.
  bool take_report(StoreReport& report);

  /// Asks the store which chunks are pinned; `pinned` is its last answer.
  void ask_pinned();
  void take_pinned(PinnedChunks& pinned);
  const std::vector<PinnedChunk>& pinned() const { return pinned_; }

  /// Where to record blocks that move between tiers; null: nowhere.
  void record_moves(std::vector<MovedBlock>* moved) { moved_ = moved; }
  void record_move(int32_t group, int32_t block) {
    if (moved_ != nullptr && moved_->size() < StepRecorder::kMaxMoved) {
      moved_->push_back({group, block});
    }
  }

 private:
  template <typename T>
  struct AfterCopies {
    uint64_t mark;  ///< of BlockTraffic, when it was queued
    T what;
  };

  size_t max_chunk_bytes() const;

  const KvLayout layout_;
  const int32_t chunk_blocks_;
  ModelRunner& runner_;
  Mailbox<StoreCommand>& store_;
  ChainId next_id_ = 1;
  std::vector<ChunkData> spare_;
  std::deque<AfterCopies<StoreCommand>> outgoing_;
  std::deque<AfterCopies<ChunkData>> being_copied_;
  StoreStats stats_;
  bool reported_ = false;
  std::vector<PinnedChunk> pinned_;
  bool pinned_asked_ = false;
  std::vector<MovedBlock>* moved_ = nullptr;
};

}  // namespace hearth::engine
