#pragma once
// The thread that owns the block store. Reads go before writes, because a request waits for them.
// Writes are collected into transactions of some MiB, and pending reads are served between them.
//
// What it holds is bounded by the engine, which has only so many bytes under way (see
// PrefixRestorer and PrefixSaver).

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <thread>

#include "engine/store/block_store.h"
#include "engine/store/store_messages.h"
#include "kernels/base/mailbox.h"

namespace hearth::engine {

/// The work of the thread, without a thread: simulations run it step by step.
class StoreWorker {
 public:
  StoreWorker(std::unique_ptr<BlockStore> store, std::function<void(StoreReply)> reply);

  void handle(StoreCommand command);
  /// A find is open: a request waits for its chunks.
  bool restoring() const { return !finds_.empty(); }
  /// Writes one transaction of offered chunks. False: none is waiting.
  bool write_some();
  /// Keeps the lease, recovers from errors, and reports changes.
  void tick();

 private:
  struct Write {
    ChainId id = 0;
    ChunkShape shape;
    ChunkData data;
    enum class Kind { kChunk, kTouch, kEnd } kind = Kind::kChunk;
    std::vector<PinnedBlocks> pins;
    double recompute_us = 0;
    ChunkKind touched = ChunkKind::kKv;
  };

  void on(FindChain& find);
  void on(LoadChunk& load);
  void on(EndFind& end) { finds_.erase(end.id); }
  void on(OfferChain& offer);
  void on(OfferChunk& chunk);
  void on(TouchChunk& touch);
  void on(EndOffer& end);
  void on(ListPinned& list);
  void send_events();

  const std::unique_ptr<BlockStore> store_;
  const std::function<void(StoreReply)> reply_;
  std::map<ChainId, NamedChain> finds_;
  std::map<ChainId, NamedChain> offers_;
  std::deque<Write> writes_;
};

class StoreThread {
 public:
  /// `commands` outlives it. `reply` is called on the thread.
  StoreThread(std::unique_ptr<BlockStore> store, Mailbox<StoreCommand>& commands,
              std::function<void(StoreReply)> reply);
  /// Writes the offered chunks, and joins the thread.
  ~StoreThread();
  StoreThread(const StoreThread&) = delete;
  StoreThread& operator=(const StoreThread&) = delete;

 private:
  void run();

  Mailbox<StoreCommand>& commands_;
  StoreWorker worker_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace hearth::engine
