#pragma once
// A table of the pairs of tokens that merge, with result and rank, and the merge algorithm.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace hearth::models {

/// Immutable once filled, so any thread may merge.
class BpeMerges {
 public:
  static constexpr uint32_t kNoRank = UINT32_MAX;

  /// Reserves room for `count` merges. Call once, before the first add().
  void reserve(size_t count);
  /// Adjacent `left` and `right` become `merged`; none is negative. Of two merges of the same pair
  /// the first counts. `rank` is below kNoRank.
  void add(int32_t left, int32_t right, int32_t merged, uint32_t rank);

  /// Merges pairs in `ids` until none can be merged, always the pair of least rank, the leftmost on
  /// ties.
  /// O(n log n); `ids` may be of any length below 2^32. Negative ids merge with nothing.
  void merge(std::vector<int32_t>* ids) const;

 private:
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

  std::vector<Slot> slots_;  // at most three fifths full
};

}  // namespace hearth::models
