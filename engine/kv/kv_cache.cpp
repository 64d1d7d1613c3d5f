#include "engine/kv/kv_cache.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "engine/cost/step_cost.h"
#include "engine/kv/kv_cache_blocks.h"
#include "kernels/base/check.h"
#include "kernels/base/numbers.h"
#include "kernels/base/sizes.h"

namespace hearth::engine {
namespace {

std::vector<int32_t> pool_sizes(std::span<const KvGroup> groups) {
  std::vector<int32_t> sizes;
  for (const KvGroup& group : groups) sizes.push_back(group.num_blocks);
  return sizes;
}

}  // namespace

KvCache::KvCache(int32_t block_size, std::span<const KvGroup> groups)
    : block_size_(block_size),
      groups_(groups.begin(), groups.end()),
      index_(block_size, pool_sizes(groups)) {
  HEARTH_CHECK(block_size > 0 && !groups.empty(), "block_size={} groups={}", block_size,
               groups.size());
  for (const KvGroup& group : groups) {
    pools_.emplace_back(group.num_blocks, kNumOwnerLists + 1, group.extent_blocks);
  }
  for (int32_t group = 0; group < num_groups(); ++group) {
    if (groups_[group].recurrent) recurrent_ = group;
  }
}

int32_t KvCache::peak_blocks(int32_t group, int32_t num_tokens, int32_t step_tokens) const {
  if (group == recurrent_) return kStateBlocks;
  const int32_t all = blocks_for(num_tokens);
  const int32_t window = groups_[group].window;
  if (window == 0) return all;
  // The window before the step's first row, and the step's rows, each touching one block more than
  // they fill.
  return std::min(all, blocks_for(window) + blocks_for(std::min(num_tokens, step_tokens)) + 1);
}

// ---- Lookup ---------------------------------------------------------------------------------

void KvCache::find(NodeId root, std::span<const int32_t> tokens, int32_t max_tokens,
                   std::vector<NodeId>& nodes) const {
  nodes.clear();
  if (root == kNoNode) return;
  const int32_t max_blocks = std::min(max_tokens, size32(tokens)) / block_size_;
  const size_t block_size = block_size_;
  NodeId node = root;
  const auto next = [&] {
    node = index_.find_child(node, tokens.subspan(nodes.size() * block_size, block_size));
    if (node != kNoNode) nodes.push_back(node);
    return node != kNoNode;
  };
  const auto has = [&](int32_t group) { return index_.block(node, group) != kNoBlock; };
  nodes.resize(usable_prefix(groups_, block_size_, max_blocks, next, has));
}

int32_t KvCache::cached_tokens(std::string_view scope, std::span<const int32_t> tokens,
                               int32_t max_tokens) const {
  find(index_.find_root(scope), tokens, max_tokens, found_);
  return size32(found_) * block_size_;
}

void KvCache::begin(SequenceBlocks& seq, std::string_view scope, std::span<const int32_t> tokens,
                    int32_t max_tokens) {
  begin_private(seq);
  seq.tip = index_.pin_root(scope);
  find(seq.tip, tokens, max_tokens, found_);
  if (has_states()) want_snapshot_at_branch(seq, tokens, max_tokens);
  if (found_.empty()) return;
  const auto depth = size32(found_);
  for (int32_t group = 0; group < num_groups(); ++group) {
    if (group == recurrent_) {
      seq.state.current = index_.block(found_.back(), group);
      seq.state.tokens = depth * block_size_;
      pools_[group].add_ref(seq.state.current);
      continue;
    }
    std::vector<int32_t>& table = seq.tables[group];
    table.assign(found_.size(), kNoBlock);
    for (int32_t i = first_visible_block(group, depth * block_size_); i < depth; ++i) {
      const int32_t block = index_.block(found_[i], group);
      pools_[group].add_ref(block);
      table[i] = block;
    }
  }
  index_.pin(found_.back());
  unpin(seq.tip);
  seq.tip = found_.back();
  seq.num_indexed = depth;
  seq.num_tokens = depth * block_size_;
}

void KvCache::count_uses(const SequenceBlocks& seq) {
  for (int32_t group = 0; group < num_groups(); ++group) {
    for_each_block(seq, group, [&](int32_t block) { pools_[group].count_use(block); });
  }
}

void KvCache::begin_private(SequenceBlocks& seq) {
  HEARTH_CHECK(seq.tables.empty() && seq.tip == kNoNode, "the sequence has begun already");
  seq.tables.resize(groups_.size());
}

bool KvCache::can_adopt(const SequenceBlocks& seq) const {
  if (seq.tip == kNoNode || seq.num_tokens != seq.num_indexed * block_size_) return false;
  for (int32_t group = 0; group < num_groups(); ++group) {
    if (sparse(group) || size32(seq.tables[group]) != seq.num_indexed) return false;
  }
  return true;
}

int32_t KvCache::adopt(SequenceBlocks& seq, std::span<const int32_t> tokens, int32_t max_tokens) {
  if (!can_adopt(seq)) return 0;
  const int32_t before = seq.num_tokens;
  const size_t block_size = block_size_;
  while (seq.num_tokens + block_size_ <= max_tokens) {
    const NodeId node = index_.find_child(seq.tip, tokens.subspan(seq.num_tokens, block_size));
    if (node == kNoNode) break;
    bool complete = true;
    for (int32_t group = 0; group < num_groups(); ++group) {
      complete = complete && index_.block(node, group) != kNoBlock;
    }
    if (!complete) break;
    for (int32_t group = 0; group < num_groups(); ++group) {
      const int32_t block = index_.block(node, group);
      pools_[group].add_ref(block);
      pools_[group].count_use(block);
      seq.tables[group].push_back(block);
    }
    index_.pin(node);
    unpin(seq.tip);
    seq.tip = node;
    ++seq.num_indexed;
    seq.num_tokens += block_size_;
  }
  return seq.num_tokens - before;
}

// ---- Growing --------------------------------------------------------------------------------

bool KvCache::write_needs_copy(const SequenceBlocks& seq, int32_t group) const {
  if (seq.num_tokens % block_size_ == 0) return false;
  const std::vector<int32_t>& table = seq.tables[group];
  const int32_t block = table[seq.num_tokens / block_size_];
  return pool(group).ref_count(block) > 1 || pool(group).indexed(block);
}

int32_t KvCache::missing_blocks(const SequenceBlocks& seq, int32_t group,
                                int32_t num_tokens) const {
  if (group == recurrent_) return plan_state(seq, num_tokens).num_blocks();
  const auto held = size32(seq.tables[group]);
  const int32_t grown = std::max(0, blocks_for(num_tokens) - held);
  return grown + (num_tokens > seq.num_tokens && write_needs_copy(seq, group) ? 1 : 0);
}

int32_t KvCache::wanted_blocks(const SequenceBlocks& seq, int32_t group, int32_t num_tokens,
                               int32_t step_tokens) const {
  if (group == recurrent_) {
    int32_t held = 0, last = kNoBlock;  // a snapshot that it begins from included
    for_each_block(seq, group, [&](int32_t block) { held += std::exchange(last, block) != block; });
    return std::max(0, kStateBlocks - held);
  }
  const int32_t missing =
      std::max(0, missing_blocks(seq, group, num_tokens) - num_ahead(seq, group));
  if (groups_[group].window == 0) return missing;
  const std::vector<int32_t>& table = seq.tables[group];
  const auto held = narrow<int32_t>(
      std::ranges::count_if(table, [](int32_t block) { return block != kNoBlock; }));
  return std::min(missing, std::max(0, peak_blocks(group, num_tokens, step_tokens) - held));
}

int32_t KvCache::num_ahead(const SequenceBlocks& seq, int32_t group) const {
  if (seq.ahead.blocks.empty()) return 0;
  const std::vector<int32_t>& blocks = seq.ahead.blocks[group];
  return narrow<int32_t>(
      std::ranges::count_if(blocks, [](int32_t block) { return block != kNoBlock; }));
}

int32_t KvCache::exclusive_blocks(const SequenceBlocks& seq, int32_t group) const {
  int32_t count = 0;
  for_each_block(seq, group,
                 [&](int32_t block) { count += pool(group).ref_count(block) == 1 ? 1 : 0; });
  return count + num_ahead(seq, group);
}

int32_t KvCache::owner_list_of(NodeId tip) const {
  return tip == kNoNode ? kNumOwnerLists : index_.owner_list(tip);
}

NodeId KvCache::add_child(NodeId parent, std::span<const int32_t> tokens) {
  const bool leaf = index_.num_children(parent) == 0;
  const NodeId child = index_.find_or_add_child(parent, tokens);
  if (leaf && child != kNoNode) set_continued(parent, true);
  return child;
}

void KvCache::attach(NodeId node, int32_t group, int32_t block) {
  index_.attach(node, group, block);
  double us = 0;
  if (cost_ != nullptr && cost_->measured_prefill()) {
    us = group == recurrent_
             ? snapshot_cost_us(node)
             : cost_->prefill_us({(index_.depth(node) - 1) * block_size_, block_size_});
  }
  BlockPool& pool = pools_[group];
  pool.set_indexed(block, index_.owner_list(node), us);
  if (!sparse(group) && index_.num_children(node) > 0) pool.set_continued(block, true);
}

// In sparse groups the blocks that follow do not need those before the last ones.
void KvCache::set_continued(NodeId node, bool continued) {
  if (node == kNoNode) return;
  for (int32_t group = 0; group < num_groups(); ++group) {
    const int32_t block = index_.block(node, group);
    if (!sparse(group) && block != kNoBlock) {
      pools_[group].set_continued(block, continued);
    }
  }
}

bool KvCache::reserve(SequenceBlocks& seq, int32_t num_tokens, std::vector<BlockCopy>& copies,
                      int32_t num_drafted) {
  const auto end_of = [&](int32_t group) {
    return group == recurrent_ ? num_tokens - num_drafted : num_tokens;
  };
  // A step may be reserved twice: first without its drafts.
  const bool state_reserved =
      seq.state.next != kNoBlock && seq.state.next_tokens == num_tokens - num_drafted;
  for (int32_t group = 0; group < num_groups(); ++group) {
    if (group == recurrent_ && state_reserved) continue;
    if (!can_take(group, missing_blocks(seq, group, end_of(group)))) return false;
  }
  for (int32_t group = 0; group < num_groups(); ++group) {
    if (group == recurrent_) {
      if (!state_reserved) reserve_state(seq, end_of(group));
      continue;
    }
    std::vector<int32_t>& table = seq.tables[group];
    if (num_tokens > seq.num_tokens && write_needs_copy(seq, group)) {
      int32_t& last = table[seq.num_tokens / block_size_];
      const int32_t copy = take_block(group, seq.tip);
      copies.push_back({group, last, copy});
      pools_[group].release(last);
      last = copy;
    }
    while (size32(table) < blocks_for(num_tokens)) {
      table.push_back(take_block(group, seq.tip));
    }
  }
  return true;
}

void KvCache::index_block(SequenceBlocks& seq, std::span<const int32_t> tokens) {
  const size_t depth = seq.num_indexed;
  const size_t block_size = block_size_;
  const NodeId node = add_child(seq.tip, tokens.subspan(depth * block_size, block_size));
  if (node == kNoNode) {
    stop_indexing(seq);
    return;
  }
  for (int32_t group = 0; group < num_groups(); ++group) {
    if (group == recurrent_) continue;  // index_snapshot
    BlockPool& pool = pools_[group];
    int32_t& mine = seq.tables[group][depth];
    const int32_t theirs = index_.block(node, group);
    if (mine == kNoBlock) continue;  // restored, and out of a sliding window
    if (theirs == kNoBlock) {
      attach(node, group, mine);
    } else if (theirs != mine) {
      // Another sequence computed the same tokens: the values are equal (batch invariance), so
      // share its block.
      pool.add_ref(theirs);
      pool.release(mine);
      mine = theirs;
    }
  }
  index_.pin(node);
  unpin(seq.tip);
  seq.tip = node;
  ++seq.num_indexed;
}

void KvCache::stop_indexing(SequenceBlocks& seq) {
  if (seq.tip == kNoNode) return;
  unpin(seq.tip);
  seq.tip = kNoNode;
}

void KvCache::store(SequenceBlocks& seq, std::span<const int32_t> tokens, int32_t num_tokens) {
  HEARTH_CHECK(num_tokens >= seq.num_tokens && std::cmp_less_equal(num_tokens, tokens.size()),
               "stored {}, now {} of {}", seq.num_tokens, num_tokens, tokens.size());
  seq.num_tokens = num_tokens;
  while (seq.tip != kNoNode && (seq.num_indexed + 1) * block_size_ <= num_tokens) {
    index_block(seq, tokens);
  }
  if (has_states()) {
    commit_state(seq);
    index_snapshot(seq);
  }
  for (int32_t group = 0; group < num_groups(); ++group) {
    if (group == recurrent_) continue;
    std::vector<int32_t>& table = seq.tables[group];
    // From the border backwards: everything further back was released before.
    for (int32_t i = first_visible_block(group, num_tokens) - 1; i >= 0; --i) {
      int32_t& block = table[i];
      if (block == kNoBlock) break;
      pools_[group].release(block);
      block = kNoBlock;
    }
  }
}

void KvCache::trim(SequenceBlocks& seq) {
  for (int32_t group = 0; group < num_groups(); ++group) {
    std::vector<int32_t>& table = seq.tables[group];  // empty: recurrent
    while (size32(table) > blocks_for(seq.num_tokens)) {
      pools_[group].release(table.back());
      table.pop_back();
    }
  }
}

// ---- Sharing and releasing ----------------------------------------------------------------

int32_t KvCache::share_partial(const SequenceBlocks& of, std::span<const int32_t> tokens_of,
                               SequenceBlocks& seq, std::span<const int32_t> tokens,
                               int32_t max_tokens) {
  // A state cannot be cut at a token.
  if (of.tables.empty() || seq.num_tokens % block_size_ != 0 || has_states()) return 0;
  const size_t depth = seq.num_tokens / block_size_;
  const size_t most =
      std::max(0, std::min({of.num_tokens, max_tokens, seq.num_tokens + block_size_ - 1}));
  const size_t compared = std::min({most, tokens_of.size(), tokens.size()});
  const auto equal =
      narrow<int32_t>(std::ranges::mismatch(tokens_of.first(compared), tokens.first(compared)).in1 -
                      tokens_of.begin());
  if (equal <= seq.num_tokens) return 0;
  for (int32_t group = 0; group < num_groups(); ++group) {
    const std::vector<int32_t>& theirs = of.tables[group];
    if (seq.tables[group].size() != depth || theirs.size() <= depth || theirs[depth] == kNoBlock) {
      return 0;
    }
  }
  for (int32_t group = 0; group < num_groups(); ++group) {
    const int32_t block = of.tables[group][depth];
    pools_[group].add_ref(block);
    seq.tables[group].push_back(block);
  }
  const int32_t gained = equal - seq.num_tokens;
  seq.num_tokens = equal;
  return gained;
}

void KvCache::fork(const SequenceBlocks& parent, SequenceBlocks& child) {
  HEARTH_CHECK(parent.ahead.blocks.empty(), "a prompt forks when all of it is there");
  begin_private(child);
  child.tables = parent.tables;
  child.num_tokens = parent.num_tokens;
  child.tip = parent.tip;
  child.num_indexed = parent.num_indexed;
  if (child.tip != kNoNode) index_.pin(child.tip);
  child.state = parent.state;
  for (int32_t group = 0; group < num_groups(); ++group) {
    for_each_block(child, group, [&](int32_t block) { pools_[group].add_ref(block); });
  }
}

void KvCache::release(SequenceBlocks& seq) {
  drop_ahead(seq);
  drop_reserved_state(seq);
  if (seq.state.current != kNoBlock) pools_[recurrent_].release(seq.state.current);
  if (seq.state.border != kNoBlock) {
    pools_[recurrent_].count_end(seq.state.border);
    pools_[recurrent_].release(seq.state.border);
  }
  for (size_t group = 0; group < seq.tables.size(); ++group) {
    std::vector<int32_t>& table = seq.tables[group];
    for (auto block = table.rbegin(); block != table.rend(); ++block) {
      if (*block == kNoBlock) continue;
      pools_[group].count_end(*block);
      pools_[group].release(*block);
    }
  }
  stop_indexing(seq);
  seq = SequenceBlocks{};
}

// ---- The slow tier --------------------------------------------------------------------------

int32_t KvCache::insert(std::string_view scope, std::span<const int32_t> tokens,
                        int32_t first_block, int32_t count, std::span<const uint64_t> present,
                        std::vector<BlockWrite>& writes) {
  const size_t block_size = block_size_;
  HEARTH_CHECK(present.size() == groups_.size() && first_block >= 0 && count >= 0 &&
                   (first_block + count) * block_size <= tokens.size(),
               "groups={} first={} count={} tokens={}", present.size(), first_block, count,
               tokens.size());
  // The chain is held while it grows, like a sequence's: none of its blocks is evicted to make room
  // for the next, and it is released last to first, so that it will be evicted from its end.
  SequenceBlocks chain;
  begin_private(chain);
  chain.tip = index_.pin_root(scope);
  const auto hold = [&](NodeId node) {
    for (int32_t group = 0; group < num_groups(); ++group) {
      const int32_t block = index_.block(node, group);
      if (block != kNoBlock) pools_[group].add_ref(block);
      chain.tables[group].push_back(block);
    }
    index_.pin(node);
    unpin(chain.tip);
    chain.tip = node;
    ++chain.num_indexed;
  };
  const auto whole = [&](NodeId node) {
    for (int32_t group = 0; group < num_groups(); ++group) {
      if (!sparse(group) && index_.block(node, group) == kNoBlock) return false;
    }
    return true;
  };
  const auto tokens_of = [&](int32_t depth) {
    return tokens.subspan(depth * block_size, block_size);
  };
  int32_t taken = 0;
  // If all groups are sparse, only the last blocks are kept: the nodes before them have none.
  bool all_sparse = true;
  for (int32_t group = 0; group < num_groups(); ++group) all_sparse = all_sparse && sparse(group);
  while (chain.num_indexed < first_block) {
    const std::span<const int32_t> block = tokens_of(chain.num_indexed);
    const NodeId node =
        all_sparse ? add_child(chain.tip, block) : index_.find_child(chain.tip, block);
    if (node == kNoNode || !whole(node)) break;
    hold(node);
  }
  for (; chain.num_indexed == first_block + taken && taken < count; ++taken) {
    const auto given = [&](int32_t group) { return (present[group] >> taken & 1u) != 0; };
    // What is not given of a full group has to be there: a snapshot is restored on its own.
    const NodeId known = index_.find_child(chain.tip, tokens_of(chain.num_indexed));
    bool possible = true;
    for (int32_t group = 0; group < num_groups(); ++group) {
      const bool there = known != kNoNode && index_.block(known, group) != kNoBlock;
      possible = possible && (given(group) ? there || can_take(group, 1) : there || sparse(group));
    }
    if (!possible) break;
    const NodeId node = add_child(chain.tip, tokens_of(chain.num_indexed));
    if (node == kNoNode) break;
    // The node's existing blocks are held before others are evicted for the missing ones.
    hold(node);
    for (int32_t group = 0; group < num_groups(); ++group) {
      int32_t& block = chain.tables[group].back();
      if (block != kNoBlock || !given(group)) continue;
      block = take_block(group, node);
      attach(node, group, block);
      writes.push_back({group, block, taken});
    }
    if (recurrent_ >= 0 && given(recurrent_)) {
      index_.set_state_stored(node);
    } else {
      index_.set_stored(node);
    }
  }
  release(chain);
  return taken;
}

int32_t KvCache::insert_ahead(SequenceBlocks& seq, int32_t first_block, int32_t count,
                              int32_t end_block, std::span<const uint64_t> present,
                              std::vector<BlockWrite>& writes) {
  AheadBlocks& ahead = seq.ahead;
  if (ahead.blocks.empty()) {
    ahead.blocks.resize(groups_.size());
    ahead.first = ahead.end = end_block;
  }
  if (ahead.end != end_block || first_block + count != ahead.first) return 0;
  const ptrdiff_t begin = writes.size();
  int32_t taken = 0;
  for (; taken < count && ahead.first > seq.num_tokens / block_size_; ++taken) {
    const int32_t index = count - 1 - taken;
    const auto wanted = [&](int32_t group) {
      return first_block + index >= first_visible_block(group, end_block * block_size_);
    };
    bool possible = true;
    for (int32_t group = 0; group < num_groups(); ++group) {
      const bool given = (present[group] >> index & 1u) != 0;
      possible = possible && (!wanted(group) || (given && can_take(group, 1)));
    }
    if (!possible) break;
    for (int32_t group = 0; group < num_groups(); ++group) {
      std::vector<int32_t>& blocks = ahead.blocks[group];
      blocks.push_back(wanted(group) ? take_block(group, seq.tip) : kNoBlock);
      if (blocks.back() != kNoBlock) writes.push_back({group, blocks.back(), index});
    }
    --ahead.first;
  }
  // In the order of the bytes.
  std::sort(writes.begin() + begin, writes.end(), [](const BlockWrite& a, const BlockWrite& b) {
    return std::tie(a.index, a.group) < std::tie(b.index, b.group);
  });
  return taken;
}

int32_t KvCache::join_ahead(SequenceBlocks& seq, std::span<const int32_t> tokens) {
  const AheadBlocks& ahead = seq.ahead;
  const int32_t front = seq.num_tokens / block_size_;
  if (ahead.first == ahead.end || front < ahead.first) return 0;
  const int32_t end = ahead.end;
  const int32_t gained = end * block_size_ - seq.num_tokens;
  if (gained <= 0) {  // it was computed or cached meanwhile
    drop_ahead(seq);
    return 0;
  }
  for (int32_t group = 0; group < num_groups(); ++group) {
    BlockPool& pool = pools_[group];
    std::vector<int32_t>& table = seq.tables[group];
    const std::vector<int32_t>& blocks = ahead.blocks[group];
    const auto give_back = [&pool](int32_t block) {
      if (block != kNoBlock) pool.release(block);
    };
    // A partly filled block, and reserved ones.
    for (; size32(table) > front; table.pop_back()) give_back(table.back());
    for (int32_t i = ahead.first; i < end; ++i) {
      const int32_t block = blocks[end - 1 - i];
      if (i < front) {
        give_back(block);
      } else {
        table.push_back(block);
      }
    }
    for (int32_t i = 0; i < first_visible_block(group, end * block_size_); ++i) {
      give_back(std::exchange(table[i], kNoBlock));
    }
  }
  seq.ahead = AheadBlocks();
  store(seq, tokens, end * block_size_);
  NodeId node = seq.tip;
  for (int32_t i = end; node != kNoNode && i > front; --i) {
    index_.set_stored(node);
    node = index_.parent(node);
  }
  return gained;
}

void KvCache::drop_ahead(SequenceBlocks& seq) {
  for (size_t group = 0; group < seq.ahead.blocks.size(); ++group) {
    for (const int32_t block : seq.ahead.blocks[group]) {
      if (block != kNoBlock) pools_[group].release(block);
    }
  }
  seq.ahead = AheadBlocks();
}

std::vector<NodeMark> KvCache::marks(const SequenceBlocks& seq) const {
  std::vector<NodeMark> out;
  if (seq.tip == kNoNode) return out;
  out.resize(seq.num_indexed);
  NodeId node = seq.tip;
  for (auto mark = out.rbegin(); mark != out.rend(); ++mark) {
    *mark = {node, index_.hash(node)};
    node = index_.parent(node);
  }
  return out;
}

std::vector<bool> KvCache::cached_blocks(std::string_view scope, std::span<const int32_t> tokens,
                                         int32_t group, int32_t num_blocks) const {
  std::vector<bool> out;
  NodeId node = index_.find_root(scope);
  const size_t block_size = block_size_;
  while (node != kNoNode && size32(out) < num_blocks) {
    node = index_.find_child(node, tokens.subspan(out.size() * block_size, block_size));
    if (node != kNoNode) out.push_back(index_.block(node, group) != kNoBlock);
  }
  return out;
}

int32_t KvCache::continuations(std::string_view scope, std::span<const int32_t> tokens,
                               int32_t num_blocks) const {
  NodeId node = index_.find_root(scope);
  const size_t block_size = block_size_;
  for (int32_t i = 0; i < num_blocks && node != kNoNode; ++i) {
    node = index_.find_child(node, tokens.subspan(i * block_size, block_size));
  }
  return node == kNoNode ? 0 : index_.num_children(node);
}

}  // namespace hearth::engine
