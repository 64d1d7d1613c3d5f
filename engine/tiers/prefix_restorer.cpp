#include "engine/tiers/prefix_restorer.h"

#include <sched.h>

#include <algorithm>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/numbers.h"
#include "kernels/base/sizes.h"

namespace hearth::engine {
namespace {

constexpr size_t kMaxRestores = 64;
/// Bytes being loaded while the request waits: few, so that bytes read by the store's thread are
/// still in a CPU cache when they are copied.
constexpr uint64_t kLoadWindow = 4 << 20;
/// The same while the request computes, when chunks are taken only between steps: a second's worth
/// of a slow disk, as a long step may last a quarter of one.
constexpr uint64_t kOverlapWindow = 128 << 20;
/// Before anything was measured.
constexpr double kFindUs = 1'000;
constexpr double kUsPerByte = 1e-3;    // 1 GB/s
constexpr double kMaxUsPerByte = 0.1;  // 10 MB/s
constexpr double kNewestShare = 0.25;
/// A rate that forbids restoring is never measured again, so it is trusted a little less each time.
constexpr double kDoubt = 0.98;
/// A lookup is made only if computing would take this many times as long as the lookup.
constexpr double kWorthAsking = 8;
/// The deadline if restoring does not depend on time.
constexpr int64_t kAlwaysUs = 60'000'000;

void average(double& known, double measured) {
  // Bounded, so that a suspended machine does not make later measurements look slow.
  known += kNewestShare * (std::clamp(measured, known / 4, known * 4) - known);
}

}  // namespace

PrefixRestorer::PrefixRestorer(StoreLink& link, KvCache& kv, ModelRunner& runner, bool always,
                               RestoreOverlap overlap)
    : link_(link),
      kv_(kv),
      runner_(runner),
      always_(always),
      overlap_(overlap),
      find_us_(kFindUs),
      us_per_byte_(kUsPerByte) {}

int32_t PrefixRestorer::max_blocks(const LiveRequest& live) const {
  // The last token is always computed: its logits are needed.
  return (size32(live.samples.front()->tokens) - 1) / link_.block_size();
}

int32_t PrefixRestorer::cached_blocks(const LiveRequest& live, int32_t max_blocks) const {
  const int32_t block_size = link_.block_size();
  const std::vector<int32_t>& tokens = live.samples.front()->tokens;
  return kv_.cached_tokens(live.scope, tokens, max_blocks * block_size) / block_size;
}

// ---- Lookup ---------------------------------------------------------------------------------

void PrefixRestorer::look_up(LiveRequest& live, const StepCost& cost, int64_t now_us) {
  const Request& request = live.request;
  // Log probabilities of a prompt are computed and never stored.
  if (!request.use_prefix_cache || !request.use_prefix_store || request.sampling.prompt_logprobs) {
    return;
  }
  if (!link_.answers() || restores_.size() >= kMaxRestores) return;
  const int32_t block_size = link_.block_size();
  const int32_t max = max_blocks(live);
  const int32_t cached = cached_blocks(live, max);
  if (cached >= max) return;
  const double recompute_us = cost.prefill_us({cached * block_size, (max - cached) * block_size});
  if (!always_ && recompute_us < kWorthAsking * find_us_) {
    find_us_ = std::max(kFindUs, find_us_ * kDoubt);
    return;
  }

  const ChainId id = link_.new_id();
  Restore& restore = restores_[id];
  restore.live = &live;
  restore.asked_us = now_us;
  restore.deadline_us = now_us + (always_ ? kAlwaysUs : static_cast<int64_t>(recompute_us));
  live.restore.id = id;
  FindChain find;
  find.id = id;
  find.chain.owner = request.owner;
  find.chain.root = scope_hash(live.scope);
  find.chain.published = kv_.published_name(live.scope);
  const std::vector<int32_t>& tokens = live.samples.front()->tokens;
  find.chain.tokens.assign(tokens.begin(), tokens.begin() + max * block_size);
  find.first_block = cached;
  find.max_blocks = max;
  find.asker_cpu = ::sched_getcpu();
  link_.post(std::move(find));
}

void PrefixRestorer::end(Restores::iterator at, int64_t now_us) {
  Restore& restore = at->second;
  LiveRequest& live = *restore.live;
  live.restore.id = 0;
  if (restore.overlaps) {
    live.restore.overlaps = false;
    live.restore.compute_until = 0;
    if (restore.bytes_loaded > 0 && restore.load_us > 0) {
      average(us_per_byte_, as_double(restore.load_us) / as_double(restore.bytes_loaded));
    } else if (restore.bytes_under_way > 0 && !live.ended) {
      us_per_byte_ = std::min(us_per_byte_ * 2, kMaxUsPerByte);  // nothing arrived in all that time
    }
    kv_.drop_ahead(live.samples.front()->blocks);
  } else {
    live.restore.waited_us += now_us - restore.asked_us;
  }
  bytes_under_way_ -= restore.bytes_under_way;
  link_.post(EndFind{at->first});
  restores_.erase(at);
}

void PrefixRestorer::forget(LiveRequest& live) {
  if (const auto at = restores_.find(live.restore.id); at != restores_.end()) {
    end(at, at->second.asked_us);
  }
}

void PrefixRestorer::found(ChainFound& found, const StepCost& cost, int64_t now_us) {
  const auto at = restores_.find(found.id);
  if (at == restores_.end()) return;  // it has waited long enough, or ended
  Restore& restore = at->second;
  average(find_us_, as_double(now_us - restore.asked_us));
  LiveRequest& live = *restore.live;
  const int32_t max = max_blocks(live);
  const int32_t cached = cached_blocks(live, max);
  const int32_t usable = choose(live, max, found.chunks);
  if (usable <= cached || found.chunks.empty()) return end(at, now_us);

  uint64_t bytes = 0;
  for (const FoundChunk& chunk : found.chunks) bytes += chunk.bytes;
  const double load_us = as_double(bytes) * us_per_byte_;
  const StoredPrefix prefix{link_.block_size(), cached, usable, load_us / (usable - cached)};
  const RestoreWay way = way_of(found.chunks, prefix, load_us, cost);
  if (way == RestoreWay::kCompute) {
    us_per_byte_ *= kDoubt;
    live.restore.store_slow = true;
    return end(at, now_us);
  }
  restore.end_block = usable;
  restore.to_load.assign(std::make_move_iterator(found.chunks.begin()),
                         std::make_move_iterator(found.chunks.end()));
  if (way == RestoreWay::kLoad) return begin_waiting(found.id, restore, cost, now_us);
  // Nothing is loaded before admission: a sequence without blocks of its own takes none.
  restore.overlaps = true;
  restore.ahead_block = usable;
  restore.us_per_block = prefix.load_us;
  live.restore.overlaps = true;
  live.restore.waited_us += now_us - restore.asked_us;
}

RestoreWay PrefixRestorer::way_of(const std::vector<FoundChunk>& chunks, const StoredPrefix& prefix,
                                  double load_us, const StepCost& cost) const {
  const RestoreWay best = always_ ? RestoreWay::kLoad : choose_way(cost, prefix);
  const bool may_overlap =
      overlap_ != RestoreOverlap::kNever && unbroken(chunks, prefix.first_block, prefix.end_block);
  if (overlap_ == RestoreOverlap::kAlways && may_overlap) return RestoreWay::kBoth;
  if (best != RestoreWay::kBoth || may_overlap) return best;
  const double computed_us =
      cost.prefill_us({prefix.first_block * prefix.block_size,
                       (prefix.end_block - prefix.first_block) * prefix.block_size});
  return load_us < computed_us ? RestoreWay::kLoad : RestoreWay::kCompute;
}

bool PrefixRestorer::unbroken(const std::vector<FoundChunk>& chunks, int32_t cached,
                              int32_t usable) const {
  const int32_t chunk_blocks = link_.chunk_blocks();
  int32_t at = chunks.front().shape.index * chunk_blocks;
  if (at > cached) return false;
  for (const FoundChunk& chunk : chunks) {
    const ChunkShape& shape = chunk.shape;
    if (shape.index * chunk_blocks != at) return false;
    const int32_t count = std::min(shape.num_blocks, usable - at);
    for (int32_t group = 0; group < link_.layout().num_groups(); ++group) {
      const int32_t first = kv_.first_visible_block(group, usable * link_.block_size());
      const uint64_t visible = low_bits(count) & ~low_bits(std::clamp(first - at, 0, count));
      if ((visible & ~shape.present[group]) != 0) return false;
    }
    at += shape.num_blocks;
  }
  return at >= usable;
}

int32_t PrefixRestorer::choose(const LiveRequest& live, int32_t max_blocks,
                               std::vector<FoundChunk>& chunks) const {
  const int32_t num_groups = link_.layout().num_groups();
  const int32_t chunk_blocks = link_.chunk_blocks();
  const size_t max = max_blocks;
  const std::vector<int32_t>& tokens = live.samples.front()->tokens;
  std::erase_if(chunks, [&](const FoundChunk& chunk) {
    return size32(chunk.shape.present) != num_groups || chunk.shape.num_blocks > chunk_blocks;
  });
  // The blocks of each group that are in memory, and those that are in memory or can be loaded.
  std::vector<std::vector<bool>> cached(num_groups);
  std::vector<std::vector<bool>> have(num_groups);
  for (int32_t group = 0; group < num_groups; ++group) {
    cached[group] = kv_.cached_blocks(live.scope, tokens, group, max_blocks);
    cached[group].resize(max, false);
    have[group] = cached[group];
  }
  const auto for_each_block = [&](const FoundChunk& chunk, const auto& fn) {
    for (int32_t i = 0; i < chunk.shape.num_blocks; ++i) {
      const int32_t block = chunk.shape.index * chunk_blocks + i;
      if (block >= max_blocks) break;
      for (int32_t group = 0; group < num_groups; ++group) {
        if (chunk.shape.has(group, i)) fn(group, block);
      }
    }
  };
  for (const FoundChunk& chunk : chunks) {
    for_each_block(chunk, [&](int32_t group, int32_t block) { have[group][block] = true; });
  }
  size_t num_seen = 0;
  const auto next = [&] { return num_seen++ < max; };
  const auto has = [&](int32_t group) -> bool { return have[group][num_seen - 1]; };
  const int32_t usable = usable_prefix(kv_.groups(), link_.block_size(), max_blocks, next, has);
  // If several chunks have the same blocks, the first one is enough.
  std::vector<std::vector<bool>>& got = cached;
  std::erase_if(chunks, [&](FoundChunk& chunk) {
    bool needed = false;
    for_each_block(chunk, [&](int32_t group, int32_t block) {
      if (block >= usable) return;
      if (block < kv_.first_visible_block(group, usable * link_.block_size())) return;
      if (got[group][block]) return;
      got[group][block] = true;
      needed = true;
    });
    return !needed;
  });
  return usable;
}

// ---- Chunks ---------------------------------------------------------------------------------

void PrefixRestorer::load(ChainId id, Restore& restore, FoundChunk chunk) {
  restore.bytes_under_way += chunk.bytes;
  bytes_under_way_ += chunk.bytes;
  link_.post(LoadChunk{id, chunk, link_.take_buffer()});
  restore.under_way.push_back(std::move(chunk));
}

void PrefixRestorer::loaded(ChunkLoaded& loaded, int64_t now_us) {
  const auto at = restores_.find(loaded.id);
  if (at == restores_.end()) return;
  Restore& restore = at->second;
  HEARTH_CHECK(!restore.under_way.empty(), "chain {}", loaded.id);
  const FoundChunk wanted = std::move(restore.under_way.front());
  restore.under_way.pop_front();
  restore.bytes_under_way -= wanted.bytes;
  bytes_under_way_ -= wanted.bytes;
  if (restore.overlaps) {
    // `pump` joins it.
    if (!restore.failed) insert_ahead(restore, wanted, loaded);
    return link_.keep_buffer_after_copies(std::move(loaded.data));
  }
  restore.bytes_loaded += wanted.bytes;
  const bool inserted = insert(restore, wanted, loaded);
  link_.keep_buffer_after_copies(std::move(loaded.data));
  if (inserted && !(restore.under_way.empty() && restore.to_load.empty())) {
    return load_next(loaded.id, restore);
  }
  if (inserted && restore.bytes_loaded > 0) {
    average(us_per_byte_,
            as_double(now_us - restore.load_began_us) / as_double(restore.bytes_loaded));
  }
  end(at, now_us);
}

int32_t PrefixRestorer::usable_count(const Restore& restore, const FoundChunk& wanted,
                                     const ChunkLoaded& loaded) const {
  const ChunkShape& shape = loaded.shape;
  const int32_t first = wanted.shape.index * link_.chunk_blocks();
  const int32_t count = std::min(wanted.shape.num_blocks, restore.end_block - first);
  const bool same = loaded.ok && shape.index == wanted.shape.index && shape.num_blocks >= count &&
                    size32(shape.present) == link_.layout().num_groups() &&
                    loaded.data.size == shape.data_bytes(link_.layout());
  return same ? std::max(count, 0) : 0;
}

void PrefixRestorer::write(const ChunkShape& shape, int32_t count,
                           std::span<const std::byte> data) {
  // Blocks are in the order of the bytes, and so are the writes of each block.
  const KvLayout& layout = link_.layout();
  size_t offset = 0;
  size_t next = 0;
  for (int32_t i = 0; i < count; ++i) {
    for (int32_t group = 0; group < layout.num_groups(); ++group) {
      if (!shape.has(group, i)) continue;
      if (next < writes_.size() && writes_[next].index == i && writes_[next].group == group) {
        runner_.write_block(writes_[next].group, writes_[next].block, data.subspan(offset));
        link_.record_move(writes_[next].group, writes_[next].block);
        ++next;
      }
      offset += layout.block_bytes[group];
    }
  }
  HEARTH_CHECK(next == writes_.size(), "{} of {} blocks written", next, writes_.size());
}

// ---- While the request waits ----------------------------------------------------------------

void PrefixRestorer::begin_waiting(ChainId id, Restore& restore, const StepCost& cost,
                                   int64_t now_us) {
  LiveRequest& live = *restore.live;
  const std::vector<int32_t>& tokens = live.samples.front()->tokens;
  const int32_t end = restore.end_block * link_.block_size();
  const int32_t cached = kv_.cached_tokens(live.scope, tokens, end);
  const auto computed_us =
      static_cast<int64_t>(cost.prefill_us({cached, std::max(0, end - cached)}));
  restore.deadline_us = now_us + (always_ ? kAlwaysUs : computed_us);
  restore.load_began_us = now_us;
  live.restore.first_token = cached;
  load_next(id, restore);
}

void PrefixRestorer::load_next(ChainId id, Restore& restore) {
  while (!restore.to_load.empty() &&
         (restore.under_way.empty() || bytes_under_way_ < kLoadWindow)) {
    load(id, restore, std::move(restore.to_load.front()));
    restore.to_load.pop_front();
  }
}

bool PrefixRestorer::insert(Restore& restore, const FoundChunk& wanted, ChunkLoaded& loaded) {
  const int32_t count = usable_count(restore, wanted, loaded);
  if (count == 0) return false;
  const int32_t first = wanted.shape.index * link_.chunk_blocks();
  std::vector<uint64_t> present = loaded.shape.present;
  for (int32_t group = 0; group < size32(present); ++group) {
    present[group] &= low_bits(count);
    if (!kv_.sparse(group)) {
      // Of a state nothing else is given.
      if (present[group] != low_bits(count) && !loaded.shape.is_state(link_.layout())) return false;
      continue;
    }
    // Blocks that no query attends to would only use memory.
    const int32_t visible = kv_.first_visible_block(group, restore.end_block * link_.block_size());
    present[group] &= ~low_bits(std::clamp(visible - first, 0, count));
  }
  LiveRequest& live = *restore.live;
  const std::vector<int32_t>& tokens = live.samples.front()->tokens;
  writes_.clear();
  const int32_t taken = kv_.insert(live.scope, tokens, first, count, present, writes_);
  live.restore.end_token = std::max(live.restore.end_token, (first + taken) * link_.block_size());
  write(loaded.shape, count, loaded.data.span());
  return taken == count;
}

// ---- While the request computes -------------------------------------------------------------

void PrefixRestorer::admitted(Sequence& seq, const StepCost& cost) {
  const auto at = restores_.find(seq.request->restore.id);
  if (at == restores_.end() || !at->second.overlaps) return;
  Restore& restore = at->second;
  // It was preempted since, and lost all that was loaded.
  if (restore.admitted) restore.failed = true;
  restore.admitted = true;
  restore.preemptions = seq.request->preemptions;
  if (!advance(at->first, restore, cost)) end(at, at->second.asked_us);
}

void PrefixRestorer::insert_ahead(Restore& restore, const FoundChunk& wanted, ChunkLoaded& loaded) {
  LiveRequest& live = *restore.live;
  Sequence& seq = *live.samples.front();
  const int32_t first = wanted.shape.index * link_.chunk_blocks();
  const int32_t count = usable_count(restore, wanted, loaded);
  // The sequence may have lost its blocks meanwhile, or an earlier chunk may be missing.
  const bool fits = seq.state == Sequence::State::kRunning &&
                    live.preemptions == restore.preemptions && first + count == restore.ahead_block;
  if (count == 0 || !fits) {
    restore.failed = true;
    return;
  }
  restore.load_us += loaded.load_us;
  restore.bytes_loaded += wanted.bytes;
  restore.blocks_loaded += count;
  writes_.clear();
  const int32_t taken =
      kv_.insert_ahead(seq.blocks, first, count, restore.end_block, loaded.shape.present, writes_);
  write(loaded.shape, count, loaded.data.span());
  restore.ahead_block -= taken;
  restore.failed = taken < count;  // it has computed so far itself, or no block is free
}

bool PrefixRestorer::join(Restore& restore, const StepCost& cost) {
  LiveRequest& live = *restore.live;
  Sequence& seq = *live.samples.front();
  const int32_t before = seq.blocks.num_tokens;
  const int32_t gained = kv_.join_ahead(seq.blocks, seq.tokens);
  if (gained == 0) return false;
  const int32_t of_prompt = std::clamp(live.prompt_size() - before, 0, gained);
  if (live.preemptions > 0) return true;
  RequestStats& stats = live.stats;
  stats.cached_tokens += of_prompt;
  stats.disk_tokens += of_prompt;
  if (stats.started_us.has_value()) {
    stats.saved_us += static_cast<int64_t>(cost.prefill_us({before, of_prompt}));
    joined_tokens_ += of_prompt;
  }
  return true;
}

bool PrefixRestorer::advance(ChainId id, Restore& restore, const StepCost& cost) {
  LiveRequest& live = *restore.live;
  Sequence& seq = *live.samples.front();
  if (seq.state != Sequence::State::kRunning || live.preemptions != restore.preemptions) {
    return false;
  }
  if (join(restore, cost)) return false;
  const int32_t front = seq.blocks.num_tokens / link_.block_size();
  const bool more = !restore.failed && !(restore.to_load.empty() && restore.under_way.empty());
  // No block is ahead and none will be, or they were released for lack of room.
  const bool any = seq.blocks.ahead.first < seq.blocks.ahead.end;
  if (front >= restore.ahead_block || (!more && !any) ||
      (restore.ahead_block < restore.end_block && !any)) {
    return false;
  }
  if (!more) {
    live.restore.compute_until = restore.ahead_block * link_.block_size();
    return true;
  }
  StoredPrefix prefix{link_.block_size(), front, restore.ahead_block, restore.us_per_block};
  if (restore.blocks_loaded > 0) {
    prefix.load_us = as_double(restore.load_us) / restore.blocks_loaded;
  }
  const int32_t meeting = meeting_block(cost, prefix);
  live.restore.compute_until = std::max(meeting, front + 1) * link_.block_size();
  while (!restore.to_load.empty() && bytes_under_way_ < kOverlapWindow) {
    const ChunkShape& last = restore.to_load.back().shape;
    if (last.index * link_.chunk_blocks() + last.num_blocks <= meeting) break;
    load(id, restore, std::move(restore.to_load.back()));
    restore.to_load.pop_back();
  }
  return true;
}

// ---- Before each step -----------------------------------------------------------------------

void PrefixRestorer::pump(const StepCost& cost, int64_t now_us) {
  for (auto at = restores_.begin(); at != restores_.end();) {
    const auto next = std::next(at);
    Restore& restore = at->second;
    if (restore.overlaps && !restore.admitted) {
      if (std::exchange(restore.passed_over, true)) {
        // It waits for other requests anyway, so all of it can be loaded meanwhile.
        restore.overlaps = restore.live->restore.overlaps = false;
        restore.asked_us = now_us;
        begin_waiting(at->first, restore, cost, now_us);
      }
    } else if (restore.overlaps) {
      if (!advance(at->first, restore, cost)) end(at, now_us);
    } else if (now_us >= restore.deadline_us) {
      // Loading took longer than expected: expect more of the next one.
      if (restore.load_began_us > 0) us_per_byte_ = std::min(us_per_byte_ * 2, kMaxUsPerByte);
      restore.live->restore.store_slow = true;
      end(at, now_us);
    }
    at = next;
  }
}

std::optional<int64_t> PrefixRestorer::next_deadline_us() const {
  std::optional<int64_t> first;
  for (const auto& [id, restore] : restores_) {
    if (restore.overlaps) continue;  // its sequence runs
    first = std::min(first.value_or(restore.deadline_us), restore.deadline_us);
  }
  return first;
}

}  // namespace hearth::engine
