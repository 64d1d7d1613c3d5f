#pragma once
// Who holds which KV block: the pools of all layer groups, the prefix index over them, and the
// block tables of sequences. Pure bookkeeping; device copies are handed out as a list.
//
// What holds after each call:
//  * A sequence refers to the blocks of positions [0, num_tokens), in sliding groups only to those
//    its next query can see, and to blocks reserved for the coming step.
//  * Full blocks are never written again. A partly filled last block may be shared by forks, and
//    so may the front of another's full one; the one that writes first copies it, unless it is the
//    last that refers to it and it is not indexed.
//  * A sequence whose chain is indexed refers to the indexed block at every depth (its own copy of
//    equal tokens is given back when it finds another), and blocks are released last to first.
//  * In a full group no block is evicted before those that follow it: chains are cut at their ends.
//    Among the ends, and the blocks of sliding groups, the least valuable goes (prefix_value).
//
// Owned by the engine thread.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "engine/kv/block_pool.h"
#include "engine/kv/prefix_index.h"
#include "engine/kv/usable_prefix.h"
#include "kernels/base/sizes.h"

namespace hearth::engine {

class StepCost;

/// A copy the device has to make before the step's rows are computed.
struct BlockCopy {
  int32_t group = 0;
  int32_t src = 0;
  int32_t dst = 0;
};

/// Bytes that have to be put into a block, which is cached already.
struct BlockWrite {
  int32_t group = 0;
  int32_t block = 0;
  int32_t index = 0;  ///< among the blocks that were given to `insert`
};

/// A node remembered without holding it: it may be gone, and its number another's, when looked at.
struct NodeMark {
  NodeId node = kNoNode;
  Hash128 hash;
};

/// Blocks [first, end) of a sequence that came from the slow tier while it computes what is in
/// front of them: they join it when it has come so far. They grow towards the front.
struct AheadBlocks {
  int32_t first = 0;
  int32_t end = 0;
  /// Per group, block end - 1 first; kNoBlock where a sliding group's window does not reach back.
  std::vector<std::vector<int32_t>> blocks;
};

/// The KV of one sequence. Moved, never copied: it stands for references (see KvCache::fork).
struct SequenceBlocks {
  /// Per group, logical -> physical; kNoBlock where a sliding group gave the block back.
  std::vector<std::vector<int32_t>> tables;
  int32_t num_tokens = 0;   ///< positions whose K and V are stored
  NodeId tip = kNoNode;     ///< node of the last indexed full block, or the root; pinned.
                            ///< kNoNode: this sequence's blocks are not indexed (any more)
  int32_t num_indexed = 0;  ///< full blocks from the start up to `tip`
  AheadBlocks ahead;

  SequenceBlocks() = default;
  SequenceBlocks(SequenceBlocks&&) = default;
  SequenceBlocks& operator=(SequenceBlocks&&) = default;
  SequenceBlocks(const SequenceBlocks&) = delete;
  SequenceBlocks& operator=(const SequenceBlocks&) = delete;
};

class KvCache {
 public:
  KvCache(int32_t block_size, std::span<const KvGroup> groups);

  /// From now on blocks are valued by what computing them anew would cost; null: by last use alone.
  void set_cost(const StepCost* cost) { cost_ = cost; }

  int32_t block_size() const { return block_size_; }
  int32_t num_groups() const { return size32(groups_); }
  const BlockPool& pool(int32_t group) const { return pools_[group]; }
  int32_t blocks_for(int32_t num_tokens) const {
    return (num_tokens + block_size_ - 1) / block_size_;
  }

  /// Blocks of `group` that a sequence of `num_tokens` tokens holds at most, computed alone in
  /// steps of up to `step_tokens` rows.
  int32_t peak_blocks(int32_t group, int32_t num_tokens, int32_t step_tokens) const;

  /// Tokens at the front of `tokens` found cached under `scope`, at most `max_tokens`.
  int32_t cached_tokens(std::string_view scope, std::span<const int32_t> tokens,
                        int32_t max_tokens) const;
  /// Starts an indexed sequence: takes references on its longest cached prefix of at most
  /// `max_tokens` tokens.
  void begin(SequenceBlocks& seq, std::string_view scope, std::span<const int32_t> tokens,
             int32_t max_tokens);
  /// What the sequence has found serves it: counts as a use of it. (A sequence may begin only to
  /// see whether there is room for it.)
  void count_uses(const SequenceBlocks& seq);
  /// Starts a sequence that neither looks up nor leaves anything in the index.
  void begin_private(SequenceBlocks& seq);
  /// Stands at a block border, all before it indexed, in a model whose groups are all full.
  bool can_adopt(const SequenceBlocks& seq) const;
  /// Where the sequence can_adopt, takes what others have computed since. Returns
  /// the tokens gained. For models whose groups are all full.
  int32_t adopt(SequenceBlocks& seq, std::span<const int32_t> tokens, int32_t max_tokens);

  /// Blocks of `group` to be allocated before positions [seq.num_tokens, num_tokens) can be
  /// written.
  int32_t missing_blocks(const SequenceBlocks& seq, int32_t group, int32_t num_tokens) const;
  /// As far as they will be held at the same time, when computed in steps of up to `step_tokens`
  /// rows: less than missing_blocks in sliding groups.
  int32_t wanted_blocks(const SequenceBlocks& seq, int32_t group, int32_t num_tokens,
                        int32_t step_tokens) const;
  /// Blocks of `group` that nobody else refers to: what `release` makes available.
  int32_t exclusive_blocks(const SequenceBlocks& seq, int32_t group) const;
  /// Makes positions [seq.num_tokens, num_tokens) writable, evicting cached blocks where none is
  /// free. False, and nothing changed, when there are not enough. Appends the copies to be made.
  bool reserve(SequenceBlocks& seq, int32_t num_tokens, std::vector<BlockCopy>& copies);
  /// K and V of tokens[0, num_tokens) are stored: indexes the blocks that became full, and gives
  /// back those that fell out of a sliding window.
  void store(SequenceBlocks& seq, std::span<const int32_t> tokens, int32_t num_tokens);
  /// Positions from the start on that have a block, reserved ones included.
  int32_t reserved_tokens(const SequenceBlocks& seq) const {
    return size32(seq.tables.front()) * block_size_;
  }
  /// Gives back the blocks behind the stored tokens: reserved for tokens that were rejected.
  void trim(SequenceBlocks& seq);

  /// `seq` has just begun and stands at a block border: shares the block of `of` that goes on
  /// behind it, up to token `max_tokens`, as far as the tokens of the two are equal. Returns the
  /// tokens gained, less than a block; 0 where `of` has nothing there.
  int32_t share_partial(const SequenceBlocks& of, std::span<const int32_t> tokens_of,
                        SequenceBlocks& seq, std::span<const int32_t> tokens, int32_t max_tokens);
  /// `child` (empty) shares all blocks of `parent` from now on.
  void fork(const SequenceBlocks& parent, SequenceBlocks& child);
  /// Gives back every reference; `seq` is empty after. Indexed blocks stay cached.
  void release(SequenceBlocks& seq);

  // ---- The slow tier ----

  /// Puts `count` blocks that come from elsewhere behind the first `first_block` blocks of the
  /// chain, as cached ones; bit i of present[group] says whether block i has that group's KV (full
  /// groups: always). Evicts cached blocks where none is free. Returns how many it took: fewer
  /// where the chain in front is not cached (any more), or blocks ran out. The bytes of `writes`
  /// (appended) must be written before anything else is done here.
  int32_t insert(std::string_view scope, std::span<const int32_t> tokens, int32_t first_block,
                 int32_t count, std::span<const uint64_t> present, std::vector<BlockWrite>& writes);
  /// Puts `count` blocks that come from elsewhere directly in front of those that are ahead of the
  /// sequence, the last of all being `end_block` - 1; `present`, `writes` as for insert. Returns
  /// how many of them it took, the last ones: fewer where the sequence has got so far itself or no
  /// block is left, none where they are not those that are missing.
  int32_t insert_ahead(SequenceBlocks& seq, int32_t first_block, int32_t count, int32_t end_block,
                       std::span<const uint64_t> present, std::vector<BlockWrite>& writes);
  /// Where the sequence has come to what is ahead of it, takes that as stored. Returns the tokens
  /// gained.
  int32_t join_ahead(SequenceBlocks& seq, std::span<const int32_t> tokens);
  /// Gives back what is ahead of the sequence.
  void drop_ahead(SequenceBlocks& seq);

  /// The nodes of a sequence's indexed blocks, first to last.
  std::vector<NodeMark> marks(const SequenceBlocks& seq) const;
  bool alive(const NodeMark& mark) const { return index_.has(mark.node, mark.hash); }
  /// The block that holds a live node's KV of that group, or kNoBlock.
  int32_t block_of(const NodeMark& mark, int32_t group) const {
    return index_.block(mark.node, group);
  }
  bool stored(const NodeMark& mark) const { return index_.stored(mark.node); }
  void set_stored(const NodeMark& mark) { index_.set_stored(mark.node); }
  /// What was stored may be gone: all of it may be offered again.
  void clear_stored() { index_.clear_stored(); }
  bool slides(int32_t group) const { return groups_[group].window != 0; }
  std::span<const KvGroup> groups() const { return groups_; }
  /// First logical block that a query at `position` attends to.
  int32_t first_visible_block(int32_t group, int32_t position) const {
    return engine::first_visible_block(groups_[group], block_size_, position);
  }
  /// Of the chain's first `num_blocks` blocks, which have KV of that group cached; up to the first
  /// block whose tokens are not known.
  std::vector<bool> cached_blocks(std::string_view scope, std::span<const int32_t> tokens,
                                  int32_t group, int32_t num_blocks) const;

  /// How many kept blocks go on behind the chain's first `num_blocks` blocks, whatever their
  /// tokens. 0 also where those are not kept themselves.
  int32_t continuations(std::string_view scope, std::span<const int32_t> tokens,
                        int32_t num_blocks) const;

  int32_t num_index_nodes() const { return index_.num_nodes(); }
  const PrefixIndex& index() const { return index_; }
  /// Stops the process unless pools, index and the block tables of `live` agree.
  void check_integrity(std::span<const SequenceBlocks* const> live) const;

 private:
  /// The nodes of the longest usable cached prefix, first to last.
  void find(NodeId root, std::span<const int32_t> tokens, int32_t max_tokens,
            std::vector<NodeId>& nodes) const;
  bool write_needs_copy(const SequenceBlocks& seq, int32_t group) const;
  /// Where blocks of a chain with that tip lie; those of sequences that are not indexed are apart.
  int32_t owner_list_of(NodeId tip) const;
  int32_t take_block(int32_t group, NodeId tip);
  NodeId add_child(NodeId parent, std::span<const int32_t> tokens);
  void attach(NodeId node, int32_t group, int32_t block);
  void unpin(NodeId node) { lost_last_child(index_.unpin(node)); }
  void lost_last_child(NodeId node) { set_continued(node, false); }
  void set_continued(NodeId node, bool continued);
  int32_t num_ahead(const SequenceBlocks& seq, int32_t group) const;
  void index_block(SequenceBlocks& seq, std::span<const int32_t> tokens);
  void stop_indexing(SequenceBlocks& seq);

  const int32_t block_size_;
  std::vector<KvGroup> groups_;
  std::vector<BlockPool> pools_;
  PrefixIndex index_;
  const StepCost* cost_ = nullptr;
  mutable std::vector<NodeId> found_;  ///< scratch of lookups
};

}  // namespace hearth::engine
