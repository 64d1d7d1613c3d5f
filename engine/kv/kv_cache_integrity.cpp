#include "engine/kv/kv_cache_blocks.h"
#include "kernels/base/check.h"

namespace hearth::engine {

void KvCache::check_integrity(std::span<const SequenceBlocks* const> live) const {
  index_.check_integrity();
  for (int32_t group = 0; group < num_groups(); ++group) {
    std::vector<int32_t> refs(pool(group).num_blocks(), 0);
    for (const SequenceBlocks* seq : live) {
      if (seq->tables.empty()) continue;
      for_each_block(*seq, group, [&](int32_t block) { ++refs[block]; });
      if (seq->ahead.blocks.empty()) continue;
      for (const int32_t block : seq->ahead.blocks[group]) {
        if (block != kNoBlock) ++refs[block];
      }
    }
    pool(group).check_integrity(refs);
    for (int32_t block = 0; block < pool(group).num_blocks(); ++block) {
      const NodeId node = index_.node_of(group, block);
      HEARTH_CHECK(pool(group).indexed(block) == (node != kNoNode), "block {} of group {}", block,
                   group);
      HEARTH_CHECK(pool(group).continued(block) ==
                       (node != kNoNode && !sparse(group) && index_.num_children(node) > 0),
                   "block {} of group {}", block, group);
    }
  }
  for (const SequenceBlocks* seq : live) {
    check_state(*seq);
    // The chain of the cursor is the chain of the tables, at every depth.
    NodeId node = seq->tip;
    for (int32_t depth = seq->num_indexed - 1; node != kNoNode && depth >= 0; --depth) {
      for (int32_t group = 0; group < num_groups(); ++group) {
        if (group == recurrent_) continue;
        const int32_t block = seq->tables[group][depth];
        HEARTH_CHECK(block == kNoBlock || block == index_.block(node, group),
                     "depth {} of group {}: block {}", depth, group, block);
      }
      node = index_.parent(node);
    }
    HEARTH_CHECK(seq->tip == kNoNode || index_.parent(node) == kNoNode,
                 "the chain misses its root");
  }
}

void KvCache::check_state(const SequenceBlocks& seq) const {
  const StateBlocks& state = seq.state;
  HEARTH_CHECK(has_states() || (state.current == kNoBlock && state.border == kNoBlock));
  HEARTH_CHECK(state.tokens <= seq.num_tokens, "a state of {} tokens, {} stored", state.tokens,
               seq.num_tokens);
  HEARTH_CHECK((state.current == kNoBlock) == (state.tokens == 0),
               "a state of {} tokens in block {}", state.tokens, state.current);
  HEARTH_CHECK(state.border == kNoBlock || state.border_tokens % block_size_ == 0, "snapshot at {}",
               state.border_tokens);
  HEARTH_CHECK(state.next == kNoBlock && state.saved == kNoBlock, "a step was not committed");
  if (state.border == kNoBlock || !pools_[recurrent_].indexed(state.border)) return;
  const NodeId node = index_.node_of(recurrent_, state.border);
  HEARTH_CHECK(index_.depth(node) * block_size_ == state.border_tokens, "snapshot of {} at {}",
               state.border_tokens, index_.depth(node) * block_size_);
}

}  // namespace hearth::engine
