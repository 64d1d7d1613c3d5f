#pragma once
// Which pairs of tokens merge into which, in what order, and the merging itself.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace hearth::models {

/// Immutable once filled, so any thread may merge.
class BpeMerges {
 public:
  static constexpr uint32_t kNoRank = UINT32_MAX;

  /// Room for `count` merges. Once, before the first.
  void reserve(size_t count);
  /// `left` and `right` side by side become `merged`; none is negative. Of two merges of one pair
  /// the first counts. `rank` is below kNoRank.
  void add(int32_t left, int32_t right, int32_t merged, uint32_t rank);

  /// Merges in `ids` until nothing can be: always the pair of least rank, the leftmost on ties.
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
