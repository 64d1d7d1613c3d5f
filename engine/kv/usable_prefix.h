#pragma once
// The longest prefix of a chain of blocks from which a sequence can continue, when not every layer
// group has every block. Pure; used for blocks in memory (KvCache) and in the store
// (PrefixRestorer).

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/base/sizes.h"

namespace hearth::engine {

/// One layer group as block bookkeeping sees it.
struct KvGroup {
  int32_t num_blocks = 0;
  int32_t window = 0;  ///< sliding: positions attended to; 0: a full group
  /// A block is the state of a sequence at the end of the block whose node it is attached to. A
  /// sequence continues from the last one alone.
  bool recurrent = false;
  int32_t extent_blocks = 0;  ///< blocks that are backed together; 0: all always are

  /// Whether a chain can be continued without the blocks of its front.
  bool sparse() const { return window > 0 || recurrent; }
};

/// First logical block that a query at `position` attends to, or, in a recurrent group, whose state
/// it continues.
inline int32_t first_visible_block(const KvGroup& group, int32_t block_size, int32_t position) {
  if (group.recurrent) return std::max(0, position - 1) / block_size;
  if (group.window == 0) return 0;
  return std::max(0, position - group.window + 1) / block_size;
}

/// The longest usable prefix, in blocks: the largest n up to `max_blocks` for which every group has
/// all blocks that a query at position n * block_size attends to.
///   next()      moves to the next block of the chain, block 0 first; false at the chain's end
///   has(group)  whether that group has the block moved to
template <typename Next, typename Has>
int32_t usable_prefix(std::span<const KvGroup> groups, int32_t block_size, int32_t max_blocks,
                      Next next, Has has) {
  std::vector<int32_t> run(groups.size(), 0);  // consecutive blocks that each group has, up to here
  int32_t usable = 0;
  for (int32_t num_blocks = 1; num_blocks <= max_blocks && next(); ++num_blocks) {
    bool complete = true;
    for (int32_t group = 0; group < size32(groups); ++group) {
      run[group] = has(group) ? run[group] + 1 : 0;
      const int32_t position = num_blocks * block_size;
      const int32_t first = first_visible_block(groups[group], block_size, position);
      if (run[group] >= num_blocks - first) continue;
      // A gap in a full group is visible from every later position.
      if (!groups[group].sparse()) return usable;
      complete = false;
    }
    if (complete) usable = num_blocks;
  }
  return usable;
}

}  // namespace hearth::engine
