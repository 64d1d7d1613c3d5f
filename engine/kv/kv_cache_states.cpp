// The states of recurrent layers: which blocks a sequence's state is in, and which snapshots of it
// are attached to the prefix index.

#include <algorithm>
#include <utility>

#include "engine/cost/step_cost.h"
#include "engine/kv/kv_cache.h"
#include "kernels/base/check.h"
#include "kernels/base/sizes.h"

namespace hearth::engine {

KvCache::StatePlan KvCache::plan_state(const SequenceBlocks& seq, int32_t num_tokens) const {
  const StateBlocks& state = seq.state;
  StatePlan plan;
  if (num_tokens <= state.tokens) return plan;
  const BlockPool& pool = pools_[recurrent_];
  plan.new_state =
      state.current == kNoBlock || pool.ref_count(state.current) > 1 || pool.indexed(state.current);
  const int32_t border = num_tokens / block_size_ * block_size_;
  // Only indexed sequences have snapshots.
  if (border <= state.tokens || seq.tip == kNoNode) return plan;
  plan.border = border;
  plan.new_snapshot = border < num_tokens;
  return plan;
}

void KvCache::reserve_state(SequenceBlocks& seq, int32_t num_tokens) {
  drop_reserved_state(seq);
  const StatePlan plan = plan_state(seq, num_tokens);
  StateBlocks& state = seq.state;
  if (num_tokens <= state.tokens) return;
  state.next = plan.new_state ? take_block(recurrent_, seq.tip) : state.current;
  state.next_tokens = num_tokens;
  state.saved_tokens = plan.border;
  if (plan.new_snapshot) state.saved = take_block(recurrent_, seq.tip);
}

bool KvCache::reserve_ahead(SequenceBlocks& seq, int32_t num_tokens,
                            std::vector<BlockCopy>& copies) {
  if (!has_states()) return reserve(seq, num_tokens, copies);
  commit_state(seq);
  if (!reserve(seq, num_tokens, copies, 1)) return false;
  StateBlocks& state = seq.state;
  if (state.next != kNoBlock) return true;
  // The step leaves the state as it is, but writes the block.
  const BlockPool& pool = pools_[recurrent_];
  const bool own = pool.ref_count(state.current) == 1 && !pool.indexed(state.current);
  if (!own && !can_take(recurrent_, 1)) return false;
  state.next = own ? state.current : take_block(recurrent_, seq.tip);
  state.next_tokens = state.tokens;
  state.saved_tokens = 0;
  return true;
}

void KvCache::settle_ahead(SequenceBlocks& seq, bool launched) {
  if (!has_states()) return;
  // A launched step is computed, whether its row is used or not.
  if (launched) {
    commit_state(seq);
  } else {
    drop_reserved_state(seq);
  }
}

bool KvCache::unshare_state(SequenceBlocks& seq, std::vector<BlockCopy>& copies) {
  StateBlocks& state = seq.state;
  BlockPool& pool = pools_[recurrent_];
  if (pool.ref_count(state.current) == 1 && !pool.indexed(state.current)) return true;
  if (!can_take(recurrent_, 1)) return false;
  const int32_t copy = take_block(recurrent_, seq.tip);
  copies.push_back({recurrent_, state.current, copy});
  pool.release(std::exchange(state.current, copy));
  return true;
}

void KvCache::drop_reserved_state(SequenceBlocks& seq) {
  StateBlocks& state = seq.state;
  if (state.next != kNoBlock && state.next != state.current) pools_[recurrent_].release(state.next);
  if (state.saved != kNoBlock) pools_[recurrent_].release(state.saved);
  state.next = state.saved = kNoBlock;
}

void KvCache::commit_state(SequenceBlocks& seq) {
  StateBlocks& state = seq.state;
  if (state.next == kNoBlock) return;
  BlockPool& pool = pools_[recurrent_];
  if (state.next != state.current && state.current != kNoBlock) pool.release(state.current);
  state.current = std::exchange(state.next, kNoBlock);
  state.tokens = state.next_tokens;
  state.kept_first = state.keep_first;
  if (state.saved_tokens == 0) return;
  release_snapshot(seq);
  state.border_tokens = std::exchange(state.saved_tokens, 0);
  state.border = std::exchange(state.saved, kNoBlock);
  if (state.border != kNoBlock) return;
  // The step has ended at the border: its state is the snapshot.
  state.border = state.current;
  pool.add_ref(state.border);
}

void KvCache::index_snapshot(SequenceBlocks& seq) {
  StateBlocks& state = seq.state;
  BlockPool& pool = pools_[recurrent_];
  if (state.border == kNoBlock || pool.indexed(state.border) || seq.tip == kNoNode) return;
  NodeId node = seq.tip;
  if (index_.depth(node) * block_size_ < state.border_tokens) return;
  while (index_.depth(node) * block_size_ > state.border_tokens) node = index_.parent(node);
  const int32_t theirs = index_.block(node, recurrent_);
  if (theirs == kNoBlock) return attach(node, recurrent_, state.border);
  // Another sequence has taken it; the values are equal.
  pool.add_ref(theirs);
  pool.release(state.border);
  state.border = theirs;
}

void KvCache::release_snapshot(SequenceBlocks& seq) {
  StateBlocks& state = seq.state;
  if (state.border == kNoBlock) return;
  BlockPool& pool = pools_[recurrent_];
  const int32_t block = std::exchange(state.border, kNoBlock);
  const bool wanted = state.border_tokens % kSnapshotTokens == 0 ||
                      std::ranges::binary_search(state.keep, state.border_tokens);
  if (wanted) {
    pool.count_end(block);
  } else if (pool.indexed(block) && pool.ref_count(block) == 1 && !pool.used_again(block)) {
    index_.detach(recurrent_, block);  // its node has children: the sequence has gone on
    pool.clear_indexed(block);
  }
  pool.release(block);
}

void KvCache::want_snapshot_at_branch(SequenceBlocks& seq, std::span<const int32_t> tokens,
                                      int32_t max_tokens) {
  const size_t block_size = block_size_;
  NodeId node = found_.empty() ? seq.tip : found_.back();
  auto depth = size32(found_);
  const int32_t most = std::min(max_tokens, size32(tokens)) / block_size_;
  while (depth < most) {
    node = index_.find_child(node, tokens.subspan(depth * block_size, block_size));
    if (node == kNoNode) break;
    ++depth;
  }
  if (depth > size32(found_)) seq.state.keep.push_back(depth * block_size_);
}

void KvCache::want_snapshots(SequenceBlocks& seq, std::span<const int32_t> tokens_at) {
  std::vector<int32_t>& keep = seq.state.keep;
  for (const int32_t num_tokens : tokens_at) {
    const int32_t border = num_tokens / block_size_ * block_size_;
    if (border > 0) keep.push_back(border);
  }
  std::ranges::sort(keep);
  keep.erase(std::unique(keep.begin(), keep.end()), keep.end());
}

int32_t KvCache::step_end(const SequenceBlocks& seq, int32_t position, int32_t end) const {
  if (!has_states() || seq.tip == kNoNode) return end;
  int32_t stop = (position / kSnapshotTokens + 1) * kSnapshotTokens;
  const auto kept = std::ranges::upper_bound(seq.state.keep, position);
  if (kept != seq.state.keep.end()) stop = std::min(stop, *kept);
  // The last border before the end gets a snapshot anyway.
  return stop < end / block_size_ * block_size_ ? stop : end;
}

double KvCache::snapshot_cost_us(NodeId node) const {
  const int32_t end = index_.depth(node);
  NodeId before = index_.parent(node);
  while (index_.depth(before) > 0 && index_.block(before, recurrent_) == kNoBlock) {
    before = index_.parent(before);
  }
  const int32_t begin = index_.depth(before);
  return cost_->prefill_us({begin * block_size_, (end - begin) * block_size_});
}

}  // namespace hearth::engine
