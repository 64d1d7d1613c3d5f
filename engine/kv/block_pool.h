#pragma once
// Reference-counted blocks of one layer group. Pure bookkeeping: it knows numbers 0 .. num_blocks-1
// and no memory.
//
// A block is in exactly one of three states:
//   free    no reference, not in the prefix index
//   used    at least one sequence refers to it (it may be in the prefix index too)
//   cached  no reference, but in the prefix index: kept until evicted
// This class chooses which extents of `extent_blocks` consecutive blocks the memory's owner backs
// and gives back. Used and cached blocks are always backed. Of the backed free blocks the first is
// taken, so that the last extents become free and can be given back.
//
// Used and cached blocks are on owner lists, one per owner. Eviction takes the least valuable block
// (prefix_value) of the fullest list, so no owner can flush the blocks of another while holding
// more itself. A block that other blocks continue is evicted after them. An operation takes O(log
// blocks + owner lists). Owned by the engine thread.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "kernels/base/sizes.h"

namespace hearth::engine {

class BlockPool {
 public:
  /// `extent_blocks` 0: all blocks are always backed.
  explicit BlockPool(int32_t num_blocks, int32_t num_owner_lists = 1, int32_t extent_blocks = 0);

  int32_t num_blocks() const { return size32(blocks_); }
  int32_t num_free() const { return num_blocks() - num_held_; }
  int32_t num_cached() const { return num_cached_; }
  int32_t num_used() const { return num_blocks() - num_free() - num_cached(); }
  /// Blocks that could be allocated: free ones, cached ones after eviction, and those of extents
  /// that may be backed.
  int32_t num_available() const { return num_ready() + num_cached() + num_growable(); }

  /// Free blocks that are backed.
  int32_t num_ready() const { return size32(ready_); }
  /// Blocks of the extents that may be backed in addition.
  int32_t num_growable() const;
  int32_t num_extents() const { return size32(extents_); }
  int32_t num_backed_extents() const { return num_backed_; }
  /// At most this many extents will be backed. Those above it are given back as they become free.
  void set_limit(int32_t extents) { limit_ = extents; }
  int32_t limit() const { return limit_; }
  bool over_limit() const { return num_backed_ > limit_; }
  /// The extent to back next, if more may be.
  std::optional<int32_t> next_to_back() const;
  /// The last backed extent without used or cached blocks.
  std::optional<int32_t> last_empty() const;
  /// The owner of the memory has backed the extent, or is about to give it back.
  void set_backed(int32_t extent, bool backed);
  bool backed(int32_t block) const {
    return extent_blocks_ == 0 || extents_[block / extent_blocks_].backed;
  }
  /// The extent's blocks: [first, end).
  std::pair<int32_t, int32_t> blocks_of(int32_t extent) const;

  /// Takes a free block that is backed, with one reference and on that owner list. Empty if there
  /// is none: back an extent or evict a block first.
  std::optional<int32_t> allocate(int32_t owner_list = 0);
  /// Adds a reference to a used or cached block.
  void add_ref(int32_t block);
  /// Drops a reference. A block without references becomes cached if it is indexed, else free; of
  /// equally valuable ones released one after another, the first is evicted first.
  void release(int32_t block);
  int32_t ref_count(int32_t block) const { return at(block).refs; }

  bool indexed(int32_t block) const { return at(block).indexed; }
  /// The block (used) is in the prefix index from now on, on that owner list. `recompute_us`: the
  /// time to compute its tokens again; 0 for all blocks: last use alone decides.
  void set_indexed(int32_t block, int32_t owner_list = 0, double recompute_us = 0);
  /// A sequence has found the block (used).
  void count_use(int32_t block) { ++at(block).uses; }
  /// Whether a sequence has found it.
  bool used_again(int32_t block) const { return at(block).uses > 0; }
  /// A sequence that holds it ends, and a later one may continue it.
  void count_end(int32_t block) { at(block).uses = std::max<int64_t>(at(block).uses, 1); }
  /// Whether other blocks need this one. As long as they do, it is not evicted.
  void set_continued(int32_t block, bool continued);
  bool continued(int32_t block) const { return at(block).continued; }
  /// The prefix index dropped the block; without references it is free.
  void clear_indexed(int32_t block);
  /// The block to evict: in the fullest owner list that has one, the least valuable cached block
  /// that no other block continues.
  std::optional<int32_t> next_evicted() const;
  /// As clear_indexed, to make room: the blocks that stay on its owner list age by it.
  void evict(int32_t block);
  /// Blocks on the owner list.
  int32_t num_held(int32_t owner_list) const { return owner_lists_[owner_list].held; }

  /// Stops the process unless every block is in one state and has `expected_refs[block]`
  /// references.
  void check_integrity(std::span<const int32_t> expected_refs) const;

 private:
  static constexpr int32_t kNone = -1;
  struct Block {
    int32_t refs = 0;
    bool indexed = false;
    bool continued = false;
    uint8_t owner_list = 0;
    int32_t place = kNone;  ///< index in its owner list's heap; kNone if it must not be evicted
    int64_t uses = 0;
    double recompute_us = 0;
    double value = 0;       ///< when it was released
    uint64_t released = 0;  ///< order of releases
  };

  struct Extent {
    bool backed = false;
    int32_t held = 0;  ///< used and cached blocks
  };

  struct OwnerList {
    int32_t held = 0;
    double age = 0;
    std::vector<int32_t> heap;  ///< blocks that may be evicted, the least valuable on top
  };

  const Block& at(int32_t block) const;
  Block& at(int32_t block);
  OwnerList& owner_list_of(int32_t block) { return owner_lists_[at(block).owner_list]; }
  void put_on(int32_t block, int32_t owner_list);
  void set_free(int32_t block);
  bool goes_before(int32_t a, int32_t b) const;
  void push(int32_t block);
  void take_out(int32_t block);
  void sift(std::vector<int32_t>& heap, size_t place);
  void check_extents() const;

  std::vector<Block> blocks_;
  const int32_t extent_blocks_;
  std::vector<Extent> extents_;
  int32_t num_backed_ = 0;  ///< extents
  int32_t limit_ = 0;
  std::vector<int32_t> ready_;  ///< backed free blocks, a heap with the first one on top
  int32_t num_held_ = 0;        ///< used and cached
  std::vector<OwnerList> owner_lists_;
  int32_t num_cached_ = 0;
  uint64_t releases_ = 0;
};

}  // namespace hearth::engine
