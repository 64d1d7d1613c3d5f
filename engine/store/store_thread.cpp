#include "engine/store/store_thread.h"

#include <pthread.h>
#include <sched.h>

#include <chrono>
#include <utility>

namespace hearth::engine {
namespace {

constexpr uint64_t kTransactionBytes = 4 << 20;
constexpr size_t kMaxPinned = 1024;  // in one answer
constexpr auto kTickEvery = std::chrono::milliseconds(1000);
/// Polls for a few hundred microseconds, and yields to any thread that has work.
constexpr int kRestoreLooks = 500;

/// Keeps this thread off the core of the thread that waits for its reads. On one core they would
/// wait for each other, and an idle core does not take over one of two busy threads: restoring 24
/// MiB took 3.2 to 4.7 ms on one core, and 3.0 to 3.6 ms on two.
class Apart {
 public:
  Apart() { known_ = ::sched_getaffinity(0, sizeof allowed_, &allowed_) == 0; }

  void keep_off(int32_t cpu) {
    if (!known_ || cpu < 0 || cpu >= CPU_SETSIZE || CPU_COUNT(&allowed_) < 2) return;
    cpu_set_t rest = allowed_;
    CPU_CLR(cpu, &rest);
    kept_off_ = ::sched_setaffinity(0, sizeof rest, &rest) == 0;
  }
  void let_go() {
    if (std::exchange(kept_off_, false)) ::sched_setaffinity(0, sizeof allowed_, &allowed_);
  }

 private:
  cpu_set_t allowed_{};
  bool known_ = false;
  bool kept_off_ = false;
};

}  // namespace

StoreWorker::StoreWorker(std::unique_ptr<BlockStore> store, std::function<void(StoreReply)> reply)
    : store_(std::move(store)), reply_(std::move(reply)) {}

void StoreWorker::handle(StoreCommand command) {
  std::visit([this](auto& c) { on(c); }, command);
  send_events();
}

void StoreWorker::on(FindChain& find) {
  const NamedChain& chain =
      finds_.insert_or_assign(find.id, store_->name(std::move(find.chain))).first->second;
  Result<std::vector<FoundChunk>> found = store_->find(chain, find.first_block, find.max_blocks);
  reply_(ChainFound{find.id, found.ok() ? std::move(*found) : std::vector<FoundChunk>{}});
}

void StoreWorker::on(LoadChunk& load) {
  ChunkLoaded out;
  out.id = load.id;
  const auto begin = std::chrono::steady_clock::now();
  store_->recycle(std::move(load.spare));
  if (const auto chain = finds_.find(load.id); chain != finds_.end()) {
    Result<ChunkData> data = store_->load(chain->second, &load.chunk);
    out.ok = data.ok();
    if (data.ok()) out.data = std::move(*data);
  }
  out.shape = std::move(load.chunk.shape);
  out.load_us = std::chrono::duration_cast<std::chrono::microseconds>(
                    std::chrono::steady_clock::now() - begin)
                    .count();
  reply_(std::move(out));
}

void StoreWorker::on(OfferChain& offer) {
  offers_.insert_or_assign(offer.id, store_->name(std::move(offer.chain)));
}

void StoreWorker::on(OfferChunk& chunk) {
  writes_.push_back({chunk.id,
                     std::move(chunk.shape),
                     std::move(chunk.data),
                     Write::Kind::kChunk,
                     {},
                     chunk.recompute_us});
}

void StoreWorker::on(TouchChunk& touch) {
  writes_.push_back(
      {touch.id, {touch.index, touch.num_blocks, {}}, {}, Write::Kind::kTouch, {}, 0, touch.kind});
}

void StoreWorker::on(EndOffer& end) {
  writes_.push_back({end.id, {}, {}, Write::Kind::kEnd, std::move(end.pins), 0});
}

void StoreWorker::on(ListPinned&) { reply_(PinnedChunks{store_->pinned(kMaxPinned)}); }

bool StoreWorker::write_some() {
  std::vector<Write> batch;
  uint64_t bytes = 0;
  while (!writes_.empty() && bytes < kTransactionBytes) {
    bytes += writes_.front().data.size;
    batch.push_back(std::move(writes_.front()));
    writes_.pop_front();
  }
  std::vector<ChunkToSave> chunks;
  for (const Write& write : batch) {
    const auto chain = offers_.find(write.id);
    if (chain == offers_.end()) continue;
    if (write.kind == Write::Kind::kChunk) {
      chunks.push_back({&chain->second, &write.shape, write.data.span(), write.recompute_us});
    } else if (write.kind == Write::Kind::kTouch) {
      (void)store_->touch(chain->second, write.shape.index, write.shape.num_blocks, write.touched);
    }
  }
  // Failures were counted and logged by the store.
  if (!chunks.empty()) (void)store_->save(chunks);
  for (Write& write : batch) {
    if (write.kind == Write::Kind::kChunk) {
      reply_(ChunkSaved{write.id, write.data.size, std::move(write.data)});
    } else if (write.kind == Write::Kind::kEnd) {
      const auto chain = offers_.find(write.id);
      if (chain == offers_.end()) continue;
      for (const PinnedBlocks& pin : write.pins) {
        (void)store_->pin(chain->second, pin.num_blocks, pin.seconds);
      }
      offers_.erase(chain);
    }
  }
  send_events();
  if (!chunks.empty()) reply_(StoreReport{store_->stats()});
  return !writes_.empty();
}

void StoreWorker::send_events() {
  std::vector<CacheEvent> events = store_->take_events();
  if (!events.empty()) reply_(StoreEvents{std::move(events)});
}

void StoreWorker::tick() {
  store_->tick();
  send_events();
  reply_(StoreReport{store_->stats()});
}

StoreThread::StoreThread(std::unique_ptr<BlockStore> store, Mailbox<StoreCommand>& commands,
                         std::function<void(StoreReply)> reply)
    : commands_(commands), worker_(std::move(store), std::move(reply)), thread_([this] {
        ::pthread_setname_np(::pthread_self(), "store");
        run();
      }) {}

StoreThread::~StoreThread() {
  stop_ = true;
  commands_.post(EndFind{});  // wakes the thread
  thread_.join();
}

void StoreThread::run() {
  using std::chrono::steady_clock;
  Apart apart;
  worker_.tick();
  auto next_tick = steady_clock::now() + kTickEvery;
  bool writing = false;
  while (true) {
    const auto wait = writing ? std::chrono::microseconds(0)
                              : std::chrono::duration_cast<std::chrono::microseconds>(
                                    next_tick - steady_clock::now());
    // The engine asks for the next chunk soon; waking up for it would take longer.
    for (int look = 0; worker_.restoring() && !writing && look < kRestoreLooks; ++look) {
      if (commands_.size() > 0) break;
      std::this_thread::yield();
    }
    // Read before draining, so that every command posted before it was set is drained.
    const bool last = stop_;
    for (StoreCommand& command :
         commands_.wait_and_drain(std::max(wait, std::chrono::microseconds(0)))) {
      if (const auto* find = std::get_if<FindChain>(&command)) apart.keep_off(find->asker_cpu);
      worker_.handle(std::move(command));
    }
    if (!worker_.restoring()) apart.let_go();
    writing = worker_.write_some();
    if (!writing && last) return;
    if (steady_clock::now() >= next_tick) {
      worker_.tick();
      next_tick = steady_clock::now() + kTickEvery;
    }
  }
}

}  // namespace hearth::engine
