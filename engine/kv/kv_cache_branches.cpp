// The blocks of draft tokens that compete with others of the same sequence.

#include <algorithm>
#include <utility>

#include "engine/kv/kv_cache.h"
#include "engine/kv/kv_cache_blocks.h"
#include "kernels/base/check.h"
#include "kernels/base/numbers.h"

namespace hearth::engine {

bool KvCache::begin_branch(const SequenceBlocks& seq, int32_t first, int32_t end,
                           SequenceBlocks& branch, std::vector<BlockCopy>& copies) {
  HEARTH_CHECK(!has_states() && first >= seq.num_tokens && first < end, "{} to {}, {} stored",
               first, end, seq.num_tokens);
  const int32_t shared = first / block_size_;
  const int32_t own = blocks_for(end) - shared;
  for (int32_t group = 0; group < num_groups(); ++group) {
    if (!can_take(group, own)) return false;
  }
  begin_private(branch);
  for (int32_t group = 0; group < num_groups(); ++group) {
    const std::vector<int32_t>& table = seq.tables[group];
    std::vector<int32_t>& mine = branch.tables[group];
    mine.assign(table.begin(), table.begin() + shared);
    for_each_block(branch, group, [&](int32_t block) { pools_[group].add_ref(block); });
    for (int32_t i = 0; i < own; ++i) mine.push_back(take_block(group, seq.tip));
    if (first_own(first) < seq.num_tokens) copies.push_back({group, table[shared], mine[shared]});
  }
  return true;
}

void KvCache::take_branch(SequenceBlocks& seq, SequenceBlocks& branch) {
  const int32_t kept = seq.num_tokens / block_size_;
  for (int32_t group = 0; group < num_groups(); ++group) {
    std::vector<int32_t>& table = seq.tables[group];
    std::vector<int32_t>& theirs = branch.tables[group];
    std::swap(table, theirs);
    std::swap_ranges(table.begin(), table.begin() + kept, theirs.begin());
  }
  drop_branch(branch);
}

void KvCache::drop_branch(SequenceBlocks& branch) {
  for (size_t group = 0; group < branch.tables.size(); ++group) {
    const auto drop = [&](int32_t block) { pools_[group].release(block); };
    for_each_block(branch, narrow<int32_t>(group), drop);
  }
  branch = SequenceBlocks{};
}

}  // namespace hearth::engine
