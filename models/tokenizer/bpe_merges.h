#pragma once
// The merge list of byte-level BPE and the merging itself, over token ids.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace hearth::models {

/// Immutable once filled, so any thread may merge.
class BpeMerges {
 public:
  /// Room for `count` merges. Once, before the first.
  void reserve(size_t count);
  /// The next merge, of a rank after all before it: `left` and `right`, tokens, side by side become
  /// `merged`. Of two merges of one pair the first counts.
  void add(int32_t left, int32_t right, int32_t merged);

  /// Merges in `ids` until nothing can be: always the pair of least rank, the leftmost on ties.
  /// O(n log n); `ids` may be of any length below 2^32. Negative ids merge with nothing.
  void merge(std::vector<int32_t>* ids) const;

 private:
  static constexpr uint32_t kNoRank = UINT32_MAX;
  struct Slot {
    int32_t left = -1;  // -1: free
    int32_t right = -1;
    uint32_t rank = kNoRank;
    int32_t merged = -1;
  };
  const Slot& find(int32_t left, int32_t right) const;
  size_t place_of(int32_t left, int32_t right) const;
  void merge_short(std::vector<int32_t>* ids) const;
  void merge_long(std::vector<int32_t>* ids) const;

  std::vector<Slot> slots_;  // a power of two, at most half full
  uint32_t num_added_ = 0;
};

}  // namespace hearth::models
