#include "models/tokenizer/bpe_merges.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>

#include "kernels/base/check.h"

namespace hearth::models {
namespace {

// Up to here, looking at all pairs for the best is faster than keeping them sorted. Nearly every
// piece of text is this short.
constexpr size_t kShortIds = 48;

}  // namespace

void BpeMerges::reserve(size_t count) {
  HEARTH_CHECK(slots_.empty(), "{} slots", slots_.size());
  slots_.resize(std::bit_ceil(2 * std::max<size_t>(count, 1)));
}

size_t BpeMerges::place_of(int32_t left, int32_t right) const {
  uint64_t hash = static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
  hash *= 0x9E3779B97F4A7C15;  // 2^64 / golden ratio: spreads the low bits into the high ones
  size_t at = (hash >> 32) & (slots_.size() - 1);
  while (slots_[at].left >= 0 && (slots_[at].left != left || slots_[at].right != right)) {
    at = (at + 1) & (slots_.size() - 1);
  }
  return at;
}

const BpeMerges::Slot& BpeMerges::find(int32_t left, int32_t right) const {
  return slots_[place_of(left, right)];
}

void BpeMerges::add(int32_t left, int32_t right, int32_t merged) {
  Slot& slot = slots_[place_of(left, right)];
  if (slot.left < 0) slot = {left, right, num_added_, merged};
  ++num_added_;
}

void BpeMerges::merge(std::vector<int32_t>* ids) const {
  if (ids->size() < 2) return;
  if (ids->size() <= kShortIds) {
    merge_short(ids);
  } else {
    merge_long(ids);
  }
}

void BpeMerges::merge_short(std::vector<int32_t>* ids) const {
  std::vector<int32_t>& id = *ids;
  std::array<const Slot*, kShortIds> pair;  // of each id and the next
  size_t count = id.size();
  for (size_t i = 0; i + 1 < count; ++i) pair[i] = &find(id[i], id[i + 1]);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (pair[i]->rank < pair[best]->rank) best = i;
    }
    if (pair[best]->rank == kNoRank) break;
    id[best] = pair[best]->merged;
    std::copy(id.begin() + static_cast<ptrdiff_t>(best) + 2,
              id.begin() + static_cast<ptrdiff_t>(count),
              id.begin() + static_cast<ptrdiff_t>(best) + 1);
    std::copy(pair.begin() + best + 1, pair.begin() + count - 1, pair.begin() + best);
    --count;
    if (best > 0) pair[best - 1] = &find(id[best - 1], id[best]);
    if (best + 1 < count) pair[best] = &find(id[best], id[best + 1]);
  }
  id.resize(count);
}

void BpeMerges::merge_long(std::vector<int32_t>* ids) const {
  std::vector<int32_t>& id = *ids;
  const auto count = static_cast<uint32_t>(id.size());
  // The ids that are left form a list. pair[i] is the rank of i and its successor: a candidate in
  // the queue whose rank is not the pair's any more is stale. (One whose rank is: two pairs of one
  // rank are the same two ids.)
  std::vector<uint32_t> prev(count), next(count), pair(count, kNoRank);
  std::vector<uint64_t> queue;  // a heap of rank << 32 | place, the least on top
  for (uint32_t i = 0; i < count; ++i) {
    prev[i] = i - 1;
    next[i] = i + 1;
    if (i + 1 == count) break;
    pair[i] = find(id[i], id[i + 1]).rank;
    if (pair[i] != kNoRank) queue.push_back(uint64_t{pair[i]} << 32 | i);
  }
  std::make_heap(queue.begin(), queue.end(), std::greater<>());
  const auto update = [&](uint32_t i) {
    pair[i] = next[i] < count ? find(id[i], id[next[i]]).rank : kNoRank;
    if (pair[i] == kNoRank) return;
    queue.push_back(uint64_t{pair[i]} << 32 | i);
    std::push_heap(queue.begin(), queue.end(), std::greater<>());
  };
  while (!queue.empty()) {
    const auto rank = static_cast<uint32_t>(queue.front() >> 32);
    const auto left = static_cast<uint32_t>(queue.front());
    std::pop_heap(queue.begin(), queue.end(), std::greater<>());
    queue.pop_back();
    if (pair[left] != rank) continue;
    const uint32_t right = next[left];
    id[left] = find(id[left], id[right]).merged;
    pair[right] = kNoRank;
    next[left] = next[right];
    if (next[left] < count) prev[next[left]] = left;
    update(left);
    if (left > 0) update(prev[left]);
  }
  size_t kept = 0;
  for (uint32_t i = 0; i < count; i = next[i]) id[kept++] = id[i];
  id.resize(kept);
}

}  // namespace hearth::models
