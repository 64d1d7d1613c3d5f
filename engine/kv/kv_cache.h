#pragma once
// Tracks which sequence holds which KV block: the pools of all layer groups, the prefix index over
// them, and the block tables of sequences. Pure bookkeeping; device copies are returned as a list.
//
// Invariants after each call:
//  * A sequence refers to the blocks of positions [0, num_tokens), in sliding groups only to those
//    its next query can see, and to blocks reserved for the coming step.
//  * Full blocks are never written again. Forks may share a partly filled last block, and a
//    sequence may share the front of another's full block. The first to write copies the block,
//    unless it holds the only reference and the block is not indexed.
//  * A sequence whose chain is indexed refers to the indexed block at every depth (its own copy of
//    equal tokens is released when it finds an indexed one), and blocks are released last to first.
//  * In a full group no block is evicted before those that follow it, so chains shrink from their
//    ends. Of these ends, and of the blocks of sparse groups, the least valuable is evicted first
//    (prefix_value).
//  * A recurrent group has no block per position. A sequence holds its state (changed in place) and
//    a snapshot: a state at a block border, attached to that border's node like a block. It takes a
//    snapshot at the last border of each step; when it takes the next one, the last one is dropped,
//    unless others will want it: at multiples of kSnapshotTokens, at the last border of the prompt,
//    at marks, and where another chain was seen to branch off.
//
// Owned by the engine thread.

#include <climits>
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

/// Takes and gives back the memory of blocks [first, end) of a group's pool.
class BlockMemory {
 public:
  virtual ~BlockMemory() = default;
  /// False, with nothing changed, if the device has too little.
  virtual bool back(int32_t group, int32_t first, int32_t end) = 0;
  virtual void give_back(int32_t group, int32_t first, int32_t end) = 0;
  virtual uint64_t backed_bytes() const = 0;  ///< of all groups
};

/// A cached block whose bytes have to be written.
struct BlockWrite {
  int32_t group = 0;
  int32_t block = 0;
  int32_t index = 0;  ///< among the blocks that were given to `insert`
};

/// Names a node without holding it: later the node may be gone, and its number another node's.
struct NodeMark {
  NodeId node = kNoNode;
  Hash128 hash;
};

/// Blocks [first, end) of a sequence that were restored while it computes the positions before
/// them. They join the sequence when it has computed that far. `first` moves towards the front.
struct AheadBlocks {
  int32_t first = 0;
  int32_t end = 0;
  /// Per group, block end - 1 first; kNoBlock if a sliding group's window does not reach back.
  std::vector<std::vector<int32_t>> blocks;
};

/// The state of one sequence in the recurrent group, if the model has one. A block that is in the
/// index, or that others refer to, is never changed: the next step writes to another one.
struct StateBlocks {
  int32_t tokens = 0;          ///< that `current` has seen: num_tokens, or fewer by accepted drafts
  int32_t current = kNoBlock;  ///< kNoBlock: the initial state
  int32_t border = kNoBlock;   ///< a snapshot: the state at a block border that was passed
  int32_t border_tokens = 0;
  std::vector<int32_t> keep;  ///< borders whose snapshots others will want, ascending
  /// Kept rows (StateStep) of the drafts after `tokens`, and of the coming step's drafts.
  int32_t kept_first = 0, keep_first = 0;
  // Reserved for the coming step.
  int32_t next = kNoBlock;  ///< receives the state at next_tokens; may be `current`
  int32_t next_tokens = 0;
  int32_t saved = kNoBlock;  ///< receives the state at saved_tokens, a border before that
  int32_t saved_tokens = 0;
};

/// Blocks of the recurrent group that a sequence holds at most: its state, a snapshot, and a new
/// snapshot while a step computes it.
inline constexpr int32_t kStateBlocks = 3;
/// Drafted rows of one step whose inputs are kept until they are replayed (kernels::kKeptRows).
inline constexpr int32_t kKeptRows = 32;
/// Snapshots at multiples of this are kept until they are evicted.
inline constexpr int32_t kSnapshotTokens = 2048;

/// The KV of one sequence. Moved, never copied, because it owns references (see KvCache::fork).
struct SequenceBlocks {
  /// Per group, logical -> physical; kNoBlock if a sliding group released the block. Empty for the
  /// recurrent group: see `state`.
  std::vector<std::vector<int32_t>> tables;
  int32_t num_tokens = 0;   ///< positions whose K and V are stored
  NodeId tip = kNoNode;     ///< node of the last indexed full block, or the root; pinned.
                            ///< kNoNode: this sequence's blocks are not indexed (any more)
  int32_t num_indexed = 0;  ///< full blocks from the start up to `tip`
  AheadBlocks ahead;
  StateBlocks state;

  SequenceBlocks() = default;
  SequenceBlocks(SequenceBlocks&&) = default;
  SequenceBlocks& operator=(SequenceBlocks&&) = default;
  SequenceBlocks(const SequenceBlocks&) = delete;
  SequenceBlocks& operator=(const SequenceBlocks&) = delete;
};

class KvCache {
 public:
  KvCache(int32_t block_size, std::span<const KvGroup> groups);

  /// From now on blocks are valued by the cost of computing them again; null: by last use alone.
  void set_cost(const StepCost* cost) { cost_ = cost; }

  /// From now on notes in `log`, which outlives this, which blocks of these scopes are cached. Call
  /// it while the cache is empty.
  void publish(const ScopeNames& names, CacheEventLog& log) {
    names_ = names;
    index_.publish(names, log);
  }
  /// The name under which prefixes of the scope are published; "": they are not.
  std::string_view published_name(std::string_view scope) const { return names_.of(scope); }

  /// The memory of the blocks of groups with extents; it outlives this. Null: bookkeeping alone.
  void set_memory(BlockMemory* memory) { memory_ = memory; }
  /// At most so many extents of each group are backed from now on.
  void set_limits(std::span<const int32_t> extents);
  /// Whether these limits leave blocks out of reach.
  bool bounded() const;
  /// Evicts cached blocks and gives back extents as long as a group is over its limit.
  void shrink();
  /// Gives back extents without used or cached blocks, down to so many of each group.
  void give_back_unused(std::span<const int32_t> keep);

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
  /// Counts a use of the blocks that the sequence has found. (A separate call, because a sequence
  /// may begin only to check whether there is room for it.)
  void count_uses(const SequenceBlocks& seq);
  /// Starts a sequence that does not use the index, neither for lookup nor for keeping blocks.
  void begin_private(SequenceBlocks& seq);
  /// Whether the sequence ends at a block border, all its blocks are indexed and all groups are
  /// full.
  bool can_adopt(const SequenceBlocks& seq) const;
  /// If the sequence can_adopt, takes the blocks that others have computed since. Returns the
  /// tokens gained.
  int32_t adopt(SequenceBlocks& seq, std::span<const int32_t> tokens, int32_t max_tokens);

  /// Blocks of `group` to be allocated before positions [seq.num_tokens, num_tokens) can be
  /// written.
  int32_t missing_blocks(const SequenceBlocks& seq, int32_t group, int32_t num_tokens) const;
  /// The most of them that will be held at the same time, if computed in steps of up to
  /// `step_tokens` rows: fewer than missing_blocks in sliding groups.
  int32_t wanted_blocks(const SequenceBlocks& seq, int32_t group, int32_t num_tokens,
                        int32_t step_tokens) const;
  /// Blocks of `group` that only this sequence refers to: `release` makes them available.
  int32_t exclusive_blocks(const SequenceBlocks& seq, int32_t group) const;
  /// Makes positions [seq.num_tokens, num_tokens) writable, evicting cached blocks if none is free.
  /// The last `num_drafted` of them are drafts, which do not change the state. False, with nothing
  /// changed, if there are not enough. Appends the copies to be made.
  bool reserve(SequenceBlocks& seq, int32_t num_tokens, std::vector<BlockCopy>& copies,
               int32_t num_drafted = 0);
  /// The step that was reserved is launched. Reserves the one after it, which computes the row at
  /// position num_tokens - 1 ahead of time, as a draft: the state stays that of the token before,
  /// so a step ahead that is dropped has changed nothing. Call settle_ahead next.
  bool reserve_ahead(SequenceBlocks& seq, int32_t num_tokens, std::vector<BlockCopy>& copies);
  /// Whether the step reserved by reserve_ahead was launched.
  void settle_ahead(SequenceBlocks& seq, bool launched);
  /// Gives the sequence a copy of its state if others refer to the same block, for a step that
  /// names the block as written without changing the state. False if no block is left.
  bool unshare_state(SequenceBlocks& seq, std::vector<BlockCopy>& copies);
  /// The snapshots at the last borders up to these numbers of tokens will be kept.
  void want_snapshots(SequenceBlocks& seq, std::span<const int32_t> tokens_at);
  /// The last position at which a step that begins at `position` may end: a border whose snapshot
  /// is wanted, if more than a block follows up to `end`; else `end`.
  int32_t step_end(const SequenceBlocks& seq, int32_t position, int32_t end) const;
  /// Whether sequences have a state.
  bool has_states() const { return recurrent_ >= 0; }
  /// K and V of tokens[0, num_tokens) are stored: indexes the blocks that became full, and releases
  /// those that left a sliding window.
  void store(SequenceBlocks& seq, std::span<const int32_t> tokens, int32_t num_tokens);
  /// Positions from the start on that have a block, reserved ones included.
  int32_t reserved_tokens(const SequenceBlocks& seq) const {
    return seq.tables.empty() || recurrent_ == 0 ? INT32_MAX
                                                 : size32(seq.tables.front()) * block_size_;
  }
  /// Releases the blocks after the stored tokens, which were reserved for rejected tokens.
  void trim(SequenceBlocks& seq);

  // ---- Branches of draft tokens, without states ----
  /// Gives `branch` (empty) the sequence's positions before `first`, which are reserved, and
  /// positions [first, end) in blocks of its own. Positions from first_own(first) to `first` are in
  /// its own blocks, too: those that are not stored yet are to be written there as well. False,
  /// with nothing changed, if there are not enough blocks. Appends the copies to be made.
  bool begin_branch(const SequenceBlocks& seq, int32_t first, int32_t end, SequenceBlocks& branch,
                    std::vector<BlockCopy>& copies);
  int32_t first_own(int32_t first) const { return first / block_size_ * block_size_; }
  /// From the sequence's first position that is not stored on, the branch's blocks become its own.
  void take_branch(SequenceBlocks& seq, SequenceBlocks& branch);
  void drop_branch(SequenceBlocks& branch);

  /// `seq` has just begun and ends at a block border: shares the next block of `of`, up to token
  /// `max_tokens`, as far as the tokens of the two are equal. Returns the tokens gained, less than
  /// a block; 0 if `of` has no such block.
  int32_t share_partial(const SequenceBlocks& of, std::span<const int32_t> tokens_of,
                        SequenceBlocks& seq, std::span<const int32_t> tokens, int32_t max_tokens);
  /// `child` (empty) shares all blocks of `parent` from now on.
  void fork(const SequenceBlocks& parent, SequenceBlocks& child);
  /// Releases every reference and leaves `seq` empty. Indexed blocks stay cached.
  void release(SequenceBlocks& seq);

  // ---- The slow tier ----

  /// Adds `count` restored blocks after the first `first_block` blocks of the chain, as cached
  /// ones. Bit i of present[group]: block i has that group's KV (in full groups always set). Evicts
  /// cached blocks if none is free. Returns how many it added: fewer if the chain before them is
  /// not cached (any more) or blocks ran out. Appends to `writes`; their bytes must be written
  /// before the next call here.
  int32_t insert(std::string_view scope, std::span<const int32_t> tokens, int32_t first_block,
                 int32_t count, std::span<const uint64_t> present, std::vector<BlockWrite>& writes);
  /// Adds `count` restored blocks directly before those that are ahead of the sequence; the last of
  /// all is `end_block` - 1. `present` and `writes` as for insert. Returns how many it added, from
  /// the last backwards: fewer if the sequence has computed that far itself or no block is left,
  /// none if they are not the next ones.
  int32_t insert_ahead(SequenceBlocks& seq, int32_t first_block, int32_t count, int32_t end_block,
                       std::span<const uint64_t> present, std::vector<BlockWrite>& writes);
  /// If the sequence has reached the blocks ahead of it, takes them over. Returns the tokens
  /// gained.
  int32_t join_ahead(SequenceBlocks& seq, std::span<const int32_t> tokens);
  /// Releases the blocks that are ahead of the sequence.
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
  /// The same for the node's snapshot, and what recomputing it from the snapshot before would take.
  bool state_stored(const NodeMark& mark) const { return index_.state_stored(mark.node); }
  void set_state_stored(const NodeMark& mark) { index_.set_state_stored(mark.node); }
  double snapshot_us(const NodeMark& mark) const {
    return cost_ == nullptr ? 0 : snapshot_cost_us(mark.node);
  }
  /// The store may have lost its blocks: all of them may be offered again.
  void clear_stored() { index_.clear_stored(); }
  /// Sliding and recurrent groups: not every node of a chain has a block.
  bool sparse(int32_t group) const { return groups_[group].sparse(); }
  std::span<const KvGroup> groups() const { return groups_; }
  /// First logical block that a query at `position` attends to.
  int32_t first_visible_block(int32_t group, int32_t position) const {
    return engine::first_visible_block(groups_[group], block_size_, position);
  }
  /// For each of the chain's first `num_blocks` blocks, whether that group's KV is cached; ends at
  /// the first block that the index does not have.
  std::vector<bool> cached_blocks(std::string_view scope, std::span<const int32_t> tokens,
                                  int32_t group, int32_t num_blocks) const;

  /// Of a live node's block.
  const BlockScores& scores(const NodeMark& mark) const { return index_.scores(mark.node); }
  void set_scores(const NodeMark& mark, BlockScores scores) {
    index_.set_scores(mark.node, std::move(scores));
  }

  /// How many different blocks in the index continue the chain's first `num_blocks` blocks. 0 also
  /// if those are not in the index themselves.
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
  /// The blocks of a sequence in that group, ahead of it excepted.
  template <typename Fn>
  void for_each_block(const SequenceBlocks& seq, int32_t group, const Fn& fn) const;
  /// What a step that brings the state to `num_tokens` needs of the recurrent group.
  struct StatePlan {
    int32_t border = 0;         ///< its last border, if it passes one; else 0
    bool new_state = false;     ///< the state cannot be changed in place
    bool new_snapshot = false;  ///< the border is not the step's end
    int32_t num_blocks() const { return (new_state ? 1 : 0) + (new_snapshot ? 1 : 0); }
  };
  StatePlan plan_state(const SequenceBlocks& seq, int32_t num_tokens) const;
  void reserve_state(SequenceBlocks& seq, int32_t num_tokens);
  void drop_reserved_state(SequenceBlocks& seq);
  /// The step that was reserved is computed.
  void commit_state(SequenceBlocks& seq);
  /// Attaches the snapshot to its node, once there is one.
  void index_snapshot(SequenceBlocks& seq);
  void release_snapshot(SequenceBlocks& seq);
  void want_snapshot_at_branch(SequenceBlocks& seq, std::span<const int32_t> tokens,
                               int32_t max_tokens);
  double snapshot_cost_us(NodeId node) const;
  void check_state(const SequenceBlocks& seq) const;
  /// The owner list for blocks of a chain with that tip; blocks of sequences that are not indexed
  /// have a list of their own.
  int32_t owner_list_of(NodeId tip) const;
  /// Makes sure that so many blocks can be taken, backing extents if it must.
  bool can_take(int32_t group, int32_t count);
  int32_t take_block(int32_t group, NodeId tip);
  /// Backs the next extent of the group. False if no more may be, or the device has no memory left:
  /// then what is backed is the limit.
  bool grow(int32_t group);
  bool evict_one(int32_t group);
  void give_back(int32_t group, int32_t extent);
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
  int32_t recurrent_ = -1;  ///< the recurrent group, or -1
  PrefixIndex index_;
  ScopeNames names_;
  const StepCost* cost_ = nullptr;
  BlockMemory* memory_ = nullptr;
  mutable std::vector<NodeId> found_;  ///< scratch of lookups
};

}  // namespace hearth::engine
