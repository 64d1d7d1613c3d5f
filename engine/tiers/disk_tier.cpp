#include "engine/tiers/disk_tier.h"

#include <sched.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "engine/tiers/restore_plan.h"
#include "kernels/base/check.h"

namespace hearth::engine {
namespace {

constexpr size_t kMaxRestores = 64;
constexpr size_t kMaxOffers = 64;
/// Bytes on their way in: few, so that what the store's thread has read is still in a cache of the
/// cores when it is copied. Bytes on their way out: enough to keep it busy over a long step.
constexpr uint64_t kLoadWindow = 4 << 20;
/// The same beside computing, where what was loaded is taken only between steps: a second's worth
/// of a slow disk, as a long step may last a quarter of one.
constexpr uint64_t kBesideWindow = 128 << 20;
constexpr size_t kMaxSpareBuffers = 8;
/// Of them, those that are made before they are wanted: fresh pages cost three times the reading.
constexpr size_t kReadySpare = 6;
constexpr uint64_t kOfferWindow = 32 << 20;
/// Chunks on their way to or from a device, of page-locked memory. More wait for the copy.
constexpr int32_t kPieces = 24;
/// Before anything was measured.
constexpr double kFindUs = 1'000;
constexpr double kUsPerByte = 1e-3;    // 1 GB/s
constexpr double kMaxUsPerByte = 0.1;  // 10 MB/s
constexpr double kNewestShare = 0.25;
/// A rate that forbids restoring is never measured again: each time it is believed a little less.
constexpr double kDoubt = 0.98;
/// A question that is in vain may cost this part of what computing costs: an eighth.
constexpr double kWorthAsking = 8;
/// Where restoring is not a matter of time.
constexpr int64_t kAlwaysUs = 60'000'000;

void average(double& known, double measured) {
  // A machine that slept does not make all that follows slow.
  known += kNewestShare * (std::clamp(measured, known / 4, known * 4) - known);
}

}  // namespace

DiskTier::DiskTier(KvLayout layout, KvCache& kv, ModelRunner& runner, Mailbox<StoreCommand>& store,
                   bool always, RestoreOverlap overlap)
    : layout_(std::move(layout)),
      chunk_blocks_(layout_.chunk_blocks()),
      kv_(kv),
      runner_(runner),
      store_(store),
      always_(always),
      overlap_(overlap),
      find_us_(kFindUs),
      us_per_byte_(kUsPerByte) {
  runner_.traffic().reserve(max_chunk_bytes(), kPieces);
}

DiskTier::~DiskTier() { runner_.traffic().wait(); }

size_t DiskTier::max_chunk_bytes() const {
  const int64_t block_bytes =
      std::accumulate(layout_.block_bytes.begin(), layout_.block_bytes.end(), int64_t{0});
  return static_cast<size_t>(block_bytes) * static_cast<size_t>(chunk_blocks_);
}

bool DiskTier::warm_up() {
  if (runner_.traffic().reserved() || spare_.size() >= kReadySpare) return false;
  ChunkData data = ChunkData::of_size(max_chunk_bytes());
  std::ranges::fill(data.span(), std::byte{0});
  spare_.push_back(std::move(data));
  return true;
}

// ---- In -------------------------------------------------------------------------------------

int32_t DiskTier::max_blocks(const LiveRequest& live) const {
  // The last token is always computed: its logits are wanted.
  return (static_cast<int32_t>(live.samples.front()->tokens.size()) - 1) / layout_.block_size;
}

void DiskTier::ask(LiveRequest& live, const StepCost& cost, int64_t now_us) {
  const Request& request = live.request;
  // Log probabilities of a prompt are computed, not kept.
  if (!request.use_prefix_cache || !request.use_prefix_store || request.sampling.prompt_logprobs) {
    return;
  }
  const bool usable = !reported_ || stats_.answers();
  if (!usable || restores_.size() >= kMaxRestores) return;
  const std::vector<int32_t>& tokens = live.samples.front()->tokens;
  const int32_t max = max_blocks(live);
  const int32_t cached =
      kv_.cached_tokens(live.scope, tokens, max * layout_.block_size) / layout_.block_size;
  if (cached >= max) return;
  const double recompute_us =
      cost.prefill_us({cached * layout_.block_size, (max - cached) * layout_.block_size});
  if (!always_ && recompute_us < kWorthAsking * find_us_) {
    find_us_ = std::max(kFindUs, find_us_ * kDoubt);
    return;
  }

  const ChainId id = next_id_++;
  Restore& restore = restores_[id];
  restore.live = &live;
  restore.asked_us = now_us;
  restore.deadline_us = now_us + (always_ ? kAlwaysUs : static_cast<int64_t>(recompute_us));
  live.restore.id = id;
  FindChain find;
  find.id = id;
  find.chain.owner = request.owner;
  find.chain.root = scope_hash(live.scope);
  find.chain.tokens.assign(tokens.begin(), tokens.begin() + max * layout_.block_size);
  find.first_block = cached;
  find.max_blocks = max;
  find.asker_cpu = ::sched_getcpu();
  store_.post(std::move(find));
}

void DiskTier::end(std::map<ChainId, Restore>::iterator at, int64_t now_us) {
  Restore& restore = at->second;
  LiveRequest& live = *restore.live;
  live.restore.id = 0;
  if (restore.beside) {
    live.restore.overlaps = false;
    live.restore.compute_until = 0;
    if (restore.bytes_loaded > 0 && restore.load_us > 0) {
      average(us_per_byte_,
              static_cast<double>(restore.load_us) / static_cast<double>(restore.bytes_loaded));
    } else if (restore.bytes_under_way > 0 && !live.ended) {
      us_per_byte_ = std::min(us_per_byte_ * 2, kMaxUsPerByte);  // nothing came in all that time
    }
    kv_.drop_ahead(live.samples.front()->blocks);
  } else {
    live.restore.waited_us += now_us - restore.asked_us;
  }
  loading_bytes_under_way_ -= restore.bytes_under_way;
  store_.post(EndFind{at->first});
  restores_.erase(at);
}

void DiskTier::forget(LiveRequest& live) {
  if (const auto at = restores_.find(live.restore.id); at != restores_.end()) {
    end(at, at->second.asked_us);
  }
}

void DiskTier::handle(StoreReply& reply, const StepCost& cost, int64_t now_us) {
  std::visit([&](auto& r) { on(r, cost, now_us); }, reply);
}

void DiskTier::on(ChainFound& found, const StepCost& cost, int64_t now_us) {
  const auto at = restores_.find(found.id);
  if (at == restores_.end()) return;  // waited long enough, or ended
  Restore& restore = at->second;
  average(find_us_, static_cast<double>(now_us - restore.asked_us));
  LiveRequest& live = *restore.live;
  const int32_t max = max_blocks(live);
  const std::vector<int32_t>& tokens = live.samples.front()->tokens;
  const int32_t cached =
      kv_.cached_tokens(live.scope, tokens, max * layout_.block_size) / layout_.block_size;
  const int32_t usable = choose(live, max, found.chunks);
  if (usable <= cached || found.chunks.empty()) return end(at, now_us);

  uint64_t bytes = 0;
  for (const FoundChunk& chunk : found.chunks) bytes += chunk.bytes;
  StoredPrefix prefix{layout_.block_size, cached, usable, 0};
  prefix.load_us = static_cast<double>(bytes) * us_per_byte_ / (usable - cached);
  RestoreWay way = always_ ? RestoreWay::kLoad : choose_way(cost, prefix);
  const bool may_both =
      overlap_ != RestoreOverlap::kNever && unbroken(found.chunks, cached, usable);
  if (overlap_ == RestoreOverlap::kAlways && may_both) way = RestoreWay::kBoth;
  if (way == RestoreWay::kBoth && !may_both) {
    const double computed_us =
        cost.prefill_us({cached * layout_.block_size, (usable - cached) * layout_.block_size});
    way = static_cast<double>(bytes) * us_per_byte_ < computed_us ? RestoreWay::kLoad
                                                                  : RestoreWay::kCompute;
  }
  if (way == RestoreWay::kCompute) {
    us_per_byte_ *= kDoubt;
    live.restore.store_slow = true;
    return end(at, now_us);
  }
  restore.end_block = usable;
  restore.to_ask.assign(std::make_move_iterator(found.chunks.begin()),
                        std::make_move_iterator(found.chunks.end()));
  if (way == RestoreWay::kLoad) return load_alone(found.id, restore, cost, now_us);
  // Nothing is loaded before it is admitted: who holds no blocks of his own takes none.
  restore.beside = true;
  restore.ahead_block = usable;
  restore.us_per_block = prefix.load_us;
  live.restore.overlaps = true;
  live.restore.waited_us += now_us - restore.asked_us;
}

void DiskTier::load_alone(ChainId id, Restore& restore, const StepCost& cost, int64_t now_us) {
  LiveRequest& live = *restore.live;
  const std::vector<int32_t>& tokens = live.samples.front()->tokens;
  const int32_t end = restore.end_block * layout_.block_size;
  const int32_t cached = kv_.cached_tokens(live.scope, tokens, end);
  const auto computed_us =
      static_cast<int64_t>(cost.prefill_us({cached, std::max(0, end - cached)}));
  restore.deadline_us = now_us + (always_ ? kAlwaysUs : computed_us);
  restore.load_began_us = now_us;
  live.restore.first_token = cached;
  ask_for_chunks(id, restore);
}

bool DiskTier::unbroken(const std::vector<FoundChunk>& chunks, int32_t cached,
                        int32_t usable) const {
  int32_t at = chunks.front().shape.index * chunk_blocks_;
  if (at > cached) return false;
  for (const FoundChunk& chunk : chunks) {
    const ChunkShape& shape = chunk.shape;
    if (shape.index * chunk_blocks_ != at) return false;
    const int32_t count = std::min(shape.num_blocks, usable - at);
    for (size_t group = 0; group < layout_.num_groups(); ++group) {
      const int32_t visible =
          kv_.first_visible_block(static_cast<int32_t>(group), usable * layout_.block_size);
      const uint64_t seen = low_bits(count) & ~low_bits(std::clamp(visible - at, 0, count));
      if ((seen & ~shape.present[group]) != 0) return false;
    }
    at += shape.num_blocks;
  }
  return at >= usable;
}

int32_t DiskTier::choose(const LiveRequest& live, int32_t max_blocks,
                         std::vector<FoundChunk>& chunks) const {
  const auto num_groups = layout_.num_groups();
  const auto max = static_cast<size_t>(max_blocks);
  const std::vector<int32_t>& tokens = live.samples.front()->tokens;
  std::erase_if(chunks, [&](const FoundChunk& chunk) {
    return chunk.shape.present.size() != num_groups || chunk.shape.num_blocks > chunk_blocks_;
  });
  // What there is, in memory or to be loaded.
  std::vector<std::vector<bool>> cached(num_groups);
  std::vector<std::vector<bool>> have(num_groups);
  for (size_t group = 0; group < num_groups; ++group) {
    cached[group] = kv_.cached_blocks(live.scope, tokens, static_cast<int32_t>(group), max_blocks);
    cached[group].resize(max, false);
    have[group] = cached[group];
  }
  const auto for_each_block = [&](const FoundChunk& chunk, const auto& fn) {
    for (int32_t i = 0; i < chunk.shape.num_blocks; ++i) {
      const int32_t block = chunk.shape.index * chunk_blocks_ + i;
      if (block >= max_blocks) break;
      for (size_t group = 0; group < num_groups; ++group) {
        if (chunk.shape.has(group, i)) fn(group, block);
      }
    }
  };
  for (const FoundChunk& chunk : chunks) {
    for_each_block(chunk, [&](size_t group, int32_t block) {
      have[group][static_cast<size_t>(block)] = true;
    });
  }
  size_t num_seen = 0;
  const auto next = [&] { return num_seen++ < max; };
  const auto has = [&](int32_t group) -> bool {
    return have[static_cast<size_t>(group)][num_seen - 1];
  };
  const int32_t usable = usable_prefix(kv_.groups(), layout_.block_size, max_blocks, next, has);
  // Of several with the same blocks the first one does.
  std::vector<std::vector<bool>>& got = cached;
  std::erase_if(chunks, [&](FoundChunk& chunk) {
    bool needed = false;
    for_each_block(chunk, [&](size_t group, int32_t block) {
      const auto g = static_cast<int32_t>(group);
      if (block >= usable) return;
      if (block < kv_.first_visible_block(g, usable * layout_.block_size)) return;
      if (got[group][static_cast<size_t>(block)]) return;
      got[group][static_cast<size_t>(block)] = true;
      needed = true;
    });
    return !needed;
  });
  return usable;
}

void DiskTier::ask_for_chunks(ChainId id, Restore& restore) {
  while (!restore.to_ask.empty() &&
         (restore.under_way.empty() || loading_bytes_under_way_ < kLoadWindow)) {
    FoundChunk& chunk = restore.to_ask.front();
    restore.bytes_under_way += chunk.bytes;
    loading_bytes_under_way_ += chunk.bytes;
    store_.post(LoadChunk{id, chunk, take_spare()});
    restore.under_way.push_back(std::move(chunk));
    restore.to_ask.pop_front();
  }
}

void DiskTier::on(ChunkLoaded& loaded, const StepCost&, int64_t now_us) {
  const auto at = restores_.find(loaded.id);
  if (at == restores_.end()) return;
  Restore& restore = at->second;
  HEARTH_CHECK(!restore.under_way.empty(), "chain {}", loaded.id);
  const FoundChunk wanted = std::move(restore.under_way.front());
  restore.under_way.pop_front();
  restore.bytes_under_way -= wanted.bytes;
  loading_bytes_under_way_ -= wanted.bytes;
  if (restore.beside) {
    // `pump` does the rest.
    if (!restore.failed) land(restore, wanted, loaded);
    return let_go(std::move(loaded.data));
  }
  restore.bytes_loaded += wanted.bytes;
  const bool taken = loaded.ok && take(restore, wanted, loaded);
  let_go(std::move(loaded.data));
  if (taken && !(restore.under_way.empty() && restore.to_ask.empty())) {
    return ask_for_chunks(loaded.id, restore);
  }
  if (taken && restore.bytes_loaded > 0) {
    average(us_per_byte_, static_cast<double>(now_us - restore.load_began_us) /
                              static_cast<double>(restore.bytes_loaded));
  }
  end(at, now_us);
}

bool DiskTier::take(Restore& restore, const FoundChunk& wanted, ChunkLoaded& loaded) {
  const ChunkShape& shape = loaded.shape;
  LiveRequest& live = *restore.live;
  const int32_t first = wanted.shape.index * chunk_blocks_;
  const int32_t count = std::min(wanted.shape.num_blocks, restore.end_block - first);
  if (shape.index != wanted.shape.index || shape.num_blocks < count || count <= 0 ||
      shape.present.size() != layout_.num_groups() ||
      loaded.data.size != shape.data_bytes(layout_)) {
    return false;
  }
  std::vector<uint64_t> present = shape.present;
  for (size_t group = 0; group < present.size(); ++group) {
    const auto g = static_cast<int32_t>(group);
    present[group] &= low_bits(count);
    if (!kv_.slides(g)) {
      if (present[group] != low_bits(count)) return false;
      continue;
    }
    // Blocks that no query will look at would only take room.
    const int32_t visible = kv_.first_visible_block(g, restore.end_block * layout_.block_size);
    present[group] &= ~low_bits(std::clamp(visible - first, 0, count));
  }
  const std::vector<int32_t>& tokens = live.samples.front()->tokens;
  writes_.clear();
  const int32_t taken = kv_.insert(live.scope, tokens, first, count, present, writes_);
  live.restore.end_token = std::max(live.restore.end_token, (first + taken) * layout_.block_size);
  write(shape, count, loaded.data.span());
  return taken == count;
}

void DiskTier::write(const ChunkShape& shape, int32_t count, std::span<const std::byte> data) {
  // Blocks are in the order of the bytes, and so are the writes of each block.
  size_t offset = 0;
  size_t next = 0;
  for (int32_t i = 0; i < count; ++i) {
    for (size_t group = 0; group < layout_.num_groups(); ++group) {
      if (!shape.has(group, i)) continue;
      if (next < writes_.size() && writes_[next].index == i &&
          writes_[next].group == static_cast<int32_t>(group)) {
        runner_.write_block(writes_[next].group, writes_[next].block, data.subspan(offset));
        note_moved(writes_[next].group, writes_[next].block);
        ++next;
      }
      offset += static_cast<size_t>(layout_.block_bytes[group]);
    }
  }
  HEARTH_CHECK(next == writes_.size(), "{} of {} blocks written", next, writes_.size());
}

// ---- In, beside computing -------------------------------------------------------------------

void DiskTier::admitted(Sequence& seq, const StepCost& cost) {
  const auto at = restores_.find(seq.request->restore.id);
  if (at == restores_.end() || !at->second.beside) return;
  Restore& restore = at->second;
  // Preempted since, with all that was loaded.
  if (restore.admitted) restore.failed = true;
  restore.admitted = true;
  restore.preemptions = seq.request->preemptions;
  if (!advance(at->first, restore, cost)) end(at, at->second.asked_us);
}

void DiskTier::land(Restore& restore, const FoundChunk& wanted, ChunkLoaded& loaded) {
  LiveRequest& live = *restore.live;
  Sequence& seq = *live.samples.front();
  const ChunkShape& shape = loaded.shape;
  const int32_t first = wanted.shape.index * chunk_blocks_;
  const int32_t count = std::min(wanted.shape.num_blocks, restore.end_block - first);
  const bool same = loaded.ok && shape.index == wanted.shape.index && shape.num_blocks >= count &&
                    count > 0 && shape.present.size() == layout_.num_groups() &&
                    loaded.data.size == shape.data_bytes(layout_);
  // What it was loaded for was given back meanwhile, or has gone on alone.
  const bool wanted_still = seq.state == Sequence::State::kRunning &&
                            live.preemptions == restore.preemptions &&
                            first + count == restore.ahead_block;
  if (!same || !wanted_still) {
    restore.failed = true;
    return;
  }
  restore.load_us += loaded.load_us;
  restore.bytes_loaded += wanted.bytes;
  restore.blocks_loaded += count;
  writes_.clear();
  const int32_t taken =
      kv_.insert_ahead(seq.blocks, first, count, restore.end_block, shape.present, writes_);
  write(shape, count, loaded.data.span());
  restore.ahead_block -= taken;
  restore.failed = taken < count;  // it has come so far itself, or there is no room
}

bool DiskTier::advance(ChainId id, Restore& restore, const StepCost& cost) {
  LiveRequest& live = *restore.live;
  Sequence& seq = *live.samples.front();
  if (seq.state != Sequence::State::kRunning || live.preemptions != restore.preemptions) {
    return false;
  }
  const int32_t before = seq.blocks.num_tokens;
  if (const int32_t gained = kv_.join_ahead(seq.blocks, seq.tokens); gained > 0) {
    const int32_t of_prompt = std::clamp(live.prompt_size() - before, 0, gained);
    if (live.preemptions == 0) {
      live.stats.cached_tokens += of_prompt;
      live.stats.disk_tokens += of_prompt;
      if (live.stats.started_us.has_value()) {
        live.stats.saved_us += static_cast<int64_t>(cost.prefill_us({before, of_prompt}));
        joined_tokens_ += static_cast<uint64_t>(of_prompt);
      }
    }
    return false;
  }
  const int32_t front = seq.blocks.num_tokens / layout_.block_size;
  const bool more = !restore.failed && !(restore.to_ask.empty() && restore.under_way.empty());
  // Nothing is ahead and nothing will be, or it was given back for want of room.
  const bool any = seq.blocks.ahead.first < seq.blocks.ahead.end;
  if (front >= restore.ahead_block || (!more && !any) ||
      (restore.ahead_block < restore.end_block && !any)) {
    return false;
  }
  if (!more) {
    live.restore.compute_until = restore.ahead_block * layout_.block_size;
    return true;
  }
  StoredPrefix prefix{layout_.block_size, front, restore.ahead_block, restore.us_per_block};
  if (restore.blocks_loaded > 0) {
    prefix.load_us = static_cast<double>(restore.load_us) / restore.blocks_loaded;
  }
  const int32_t meeting = meeting_block(cost, prefix);
  live.restore.compute_until = std::max(meeting, front + 1) * layout_.block_size;
  while (!restore.to_ask.empty() && loading_bytes_under_way_ < kBesideWindow) {
    FoundChunk& chunk = restore.to_ask.back();
    if (chunk.shape.index * chunk_blocks_ + chunk.shape.num_blocks <= meeting) break;
    restore.bytes_under_way += chunk.bytes;
    loading_bytes_under_way_ += chunk.bytes;
    store_.post(LoadChunk{id, chunk, take_spare()});
    restore.under_way.push_back(std::move(chunk));
    restore.to_ask.pop_back();
  }
  return true;
}

ChunkData DiskTier::take_spare() {
  if (runner_.traffic().reserved()) {
    settle();
    return runner_.traffic().take(max_chunk_bytes());
  }
  if (spare_.empty()) return {};
  ChunkData out = std::move(spare_.back());
  spare_.pop_back();
  return out;
}

void DiskTier::keep_spare(ChunkData data) {
  // Pieces of the traffic's memory go home by themselves.
  if (runner_.traffic().reserved()) return;
  if (data.bytes != nullptr && spare_.size() < kMaxSpareBuffers) spare_.push_back(std::move(data));
}

void DiskTier::let_go(ChunkData data) {
  const uint64_t mark = runner_.traffic().mark();
  if (runner_.traffic().ended(mark)) return keep_spare(std::move(data));
  leaving_.push_back({mark, std::move(data)});
}

void DiskTier::send(StoreCommand command) {
  const uint64_t mark = runner_.traffic().mark();
  if (outgoing_.empty() && runner_.traffic().ended(mark)) return store_.post(std::move(command));
  outgoing_.push_back({mark, std::move(command)});
}

void DiskTier::settle() {
  BlockTraffic& traffic = runner_.traffic();
  while (!outgoing_.empty() && traffic.ended(outgoing_.front().mark)) {
    store_.post(std::move(outgoing_.front().what));
    outgoing_.pop_front();
  }
  while (!leaving_.empty() && traffic.ended(leaving_.front().mark)) leaving_.pop_front();
}

// ---- Out ------------------------------------------------------------------------------------

void DiskTier::offer(const Sequence& seq) {
  const Request& request = seq.request->request;
  if (!request.use_prefix_cache || !request.use_prefix_store) return;
  // Another process writes, or nothing can be written now: the next one that ends tries again.
  if (reported_ && !stats_.takes_offers()) return;
  Offer offer;
  offer.marks = kv_.marks(seq.blocks);
  if (offer.marks.empty()) return;
  if (offers_.size() >= kMaxOffers) {
    ++offers_dropped_;
    return;
  }
  offer.id = next_id_++;
  for (const KeptPrefix& keep : request.kept) {
    const int32_t num_tokens = std::min(keep.num_tokens, seq.request->prompt_size());
    if (num_tokens < layout_.block_size) continue;
    offer.pins.push_back({num_tokens / layout_.block_size, keep.seconds});
  }
  offer.chain.owner = request.owner;
  offer.chain.root = scope_hash(seq.request->scope);
  const auto num_tokens =
      static_cast<ptrdiff_t>(offer.marks.size()) * static_cast<ptrdiff_t>(layout_.block_size);
  offer.chain.tokens.assign(seq.tokens.begin(), seq.tokens.begin() + num_tokens);
  offers_.push_back(std::move(offer));
}

uint64_t DiskTier::copy_out(Offer& offer, const StepCost& cost) {
  const auto begin = static_cast<size_t>(offer.next_chunk) * static_cast<size_t>(chunk_blocks_);
  const size_t end = std::min(offer.marks.size(), begin + static_cast<size_t>(chunk_blocks_));
  const auto marks = std::span(offer.marks).subspan(begin, end - begin);
  ChunkShape shape{offer.next_chunk, 0, std::vector<uint64_t>(layout_.num_groups(), 0)};
  bool stored = true;
  for (const NodeMark& mark : marks) {
    if (!kv_.alive(mark)) break;
    bool whole = true;
    for (size_t group = 0; group < layout_.num_groups(); ++group) {
      const auto g = static_cast<int32_t>(group);
      const bool there = kv_.block_of(mark, g) != kNoBlock;
      whole = whole && (there || kv_.slides(g));
      if (there) shape.present[group] |= uint64_t{1} << shape.num_blocks;
    }
    if (!whole) break;
    stored = stored && kv_.stored(mark);
    ++shape.num_blocks;
  }
  for (uint64_t& mask : shape.present) mask &= low_bits(shape.num_blocks);
  const bool evicted = shape.num_blocks < static_cast<int32_t>(marks.size());
  uint64_t bytes = 0;
  if (shape.num_blocks > 0) {
    if (!std::exchange(offer.opened, true)) {
      send(OfferChain{offer.id, std::move(offer.chain)});
    }
    if (stored) {
      send(TouchChunk{offer.id, shape.index, shape.num_blocks});
    } else {
      bytes = shape.data_bytes(layout_);
      ChunkData data = take_spare();
      if (data.capacity < bytes) data = ChunkData::of_size(bytes);
      data.size = bytes;
      size_t offset = 0;
      for (int32_t i = 0; i < shape.num_blocks; ++i) {
        const NodeMark& mark = marks[static_cast<size_t>(i)];
        for (size_t group = 0; group < layout_.num_groups(); ++group) {
          if (!shape.has(group, i)) continue;
          const auto g = static_cast<int32_t>(group);
          runner_.read_block(g, kv_.block_of(mark, g), data.span().subspan(offset));
          note_moved(g, kv_.block_of(mark, g));
          offset += static_cast<size_t>(layout_.block_bytes[group]);
        }
        kv_.set_stored(mark);
      }
      offered_bytes_under_way_ += bytes;
      const auto first = static_cast<int32_t>(begin) * layout_.block_size;
      const double recompute_us = cost.prefill_us({first, shape.num_blocks * layout_.block_size});
      send(OfferChunk{offer.id, std::move(shape), std::move(data), recompute_us});
    }
  }
  ++offer.next_chunk;
  // What follows a block that was evicted was evicted before it.
  if (evicted || end == offer.marks.size()) {
    if (evicted) ++offers_dropped_;
    offer.marks.clear();
    if (offer.opened) send(EndOffer{offer.id, std::move(offer.pins)});
  }
  return bytes;
}

bool DiskTier::pump(const StepCost& cost, int64_t now_us, uint64_t max_bytes) {
  for (auto at = restores_.begin(); at != restores_.end();) {
    const auto next = std::next(at);
    Restore& restore = at->second;
    if (restore.beside && !restore.admitted) {
      if (std::exchange(restore.passed_over, true)) {
        // It waits for others anyway: all of it can come meanwhile.
        restore.beside = restore.live->restore.overlaps = false;
        restore.asked_us = now_us;
        load_alone(at->first, restore, cost, now_us);
      }
    } else if (restore.beside) {
      if (!advance(at->first, restore, cost)) end(at, now_us);
    } else if (now_us >= at->second.deadline_us) {
      // Loading did not keep its promise: the next one shall know.
      if (at->second.load_began_us > 0) us_per_byte_ = std::min(us_per_byte_ * 2, kMaxUsPerByte);
      at->second.live->restore.store_slow = true;
      end(at, now_us);
    }
    at = next;
  }
  settle();
  bool copied = !outgoing_.empty();
  uint64_t bytes = 0;
  while (!offers_.empty() && bytes < max_bytes && offered_bytes_under_way_ < kOfferWindow) {
    bytes += copy_out(offers_.front(), cost);
    if (offers_.front().marks.empty()) offers_.pop_front();
    copied = true;
  }
  return copied;
}

void DiskTier::flush(const StepCost& cost, uint64_t max_bytes) {
  uint64_t bytes = 0;
  while (!offers_.empty() && bytes < max_bytes) {
    bytes += copy_out(offers_.front(), cost);
    if (offers_.front().marks.empty()) offers_.pop_front();
  }
  runner_.traffic().wait();
  settle();
}

std::optional<int64_t> DiskTier::next_deadline_us() const {
  std::optional<int64_t> first;
  for (const auto& [id, restore] : restores_) {
    if (restore.beside) continue;  // it runs
    first = std::min(first.value_or(restore.deadline_us), restore.deadline_us);
  }
  return first;
}

void DiskTier::on(ChunkSaved& saved, const StepCost&, int64_t) {
  keep_spare(std::move(saved.spare));
  offered_bytes_under_way_ -= std::min(offered_bytes_under_way_, saved.bytes);
}

void DiskTier::on(StoreReport& report, const StepCost&, int64_t) {
  if (reported_ && report.stats.epoch != stats_.epoch) kv_.clear_stored();
  stats_ = std::move(report.stats);
  reported_ = true;
}

void DiskTier::ask_pinned() {
  if (std::exchange(pinned_asked_, true)) return;
  store_.post(ListPinned{});
}

void DiskTier::on(PinnedChunks& pinned, const StepCost&, int64_t) {
  pinned_ = std::move(pinned.chunks);
  pinned_asked_ = false;
}

StoreStats DiskTier::stats() const {
  StoreStats out = stats_;
  out.chunks_dropped += offers_dropped_;
  return out;
}

}  // namespace hearth::engine
