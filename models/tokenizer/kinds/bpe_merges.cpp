#include "models/tokenizer/kinds/bpe_merges.h"

#include <algorithm>
#include <array>
#include <functional>

#include "kernels/base/check.h"
#include "kernels/base/numbers.h"

namespace hearth::models {
namespace {

// Up to this length, a linear search for the best pair is faster than a heap. Nearly every piece of
// text is this short.
constexpr size_t kShortIds = 48;

}  // namespace

void BpeMerges::reserve(size_t count) {
  HEARTH_CHECK(slots_.empty(), "{} slots", slots_.size());
  slots_.resize(count + count * 2 / 3 + 1);
}

size_t BpeMerges::place_of(int32_t left, int32_t right) const {
  uint64_t hash = static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
  hash *= 0x9E3779B97F4A7C15;  // 2^64 / golden ratio: spreads the low bits into the high ones
  size_t at = (hash >> 32) * slots_.size() >> 32;
  while (slots_[at].left >= 0 && (slots_[at].left != left || slots_[at].right != right)) {
    if (++at == slots_.size()) at = 0;
  }
  return at;
}

const BpeMerges::Slot& BpeMerges::find(int32_t left, int32_t right) const {
  return slots_[place_of(left, right)];
}

void BpeMerges::add(int32_t left, int32_t right, int32_t merged, uint32_t rank) {
  Slot& slot = slots_[place_of(left, right)];
  if (slot.left < 0) slot = {left, right, rank, merged};
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
    std::copy(id.begin() + best + 2, id.begin() + count, id.begin() + best + 1);
    std::copy(pair.begin() + best + 1, pair.begin() + count - 1, pair.begin() + best);
    --count;
    if (best > 0) pair[best - 1] = &find(id[best - 1], id[best]);
    if (best + 1 < count) pair[best] = &find(id[best], id[best + 1]);
  }
  id.resize(count);
}

void BpeMerges::merge_long(std::vector<int32_t>* ids) const {
  // One place in the text. The places that remain form a linked list.
  struct Link {
    int32_t id;
    uint32_t prev, next;
    uint32_t rank;  // of the pair with the next; kNoRank also if this place was merged away
  };
  // rank << 32 | place. A candidate is stale if its rank differs from the place's current rank. (If
  // the ranks agree, the current pair is merged even if it is not the pair that was queued: every
  // pair that can merge is queued, so the least candidate is still the right one.)
  using Candidate = uint64_t;
  const auto count = narrow<uint32_t>(ids->size());
  std::vector<Link> links(count);
  std::vector<Candidate>
      first;  // the initial pairs, sorted, so that most candidates never enter the heap
  std::vector<Candidate> later;  // a heap, the least on top
  for (uint32_t i = 0; i < count; ++i) {
    const bool is_last = i + 1 == count;
    const uint32_t rank = is_last ? kNoRank : find((*ids)[i], (*ids)[i + 1]).rank;
    links[i] = {(*ids)[i], i - 1, i + 1, rank};
    if (rank != kNoRank) first.push_back(Candidate{rank} << 32 | i);
  }
  std::sort(first.begin(), first.end());
  const auto update = [&](uint32_t i) {
    Link& link = links[i];
    link.rank = link.next < count ? find(link.id, links[link.next].id).rank : kNoRank;
    if (link.rank == kNoRank) return;
    later.push_back(Candidate{link.rank} << 32 | i);
    std::push_heap(later.begin(), later.end(), std::greater<>());
  };
  for (size_t at = 0; at < first.size() || !later.empty();) {
    Candidate best;
    if (later.empty() || (at < first.size() && first[at] < later.front())) {
      best = first[at++];
    } else {
      best = later.front();
      std::pop_heap(later.begin(), later.end(), std::greater<>());
      later.pop_back();
    }
    const auto place = static_cast<uint32_t>(best);
    Link& left = links[place];
    if (left.rank != best >> 32) continue;
    Link& right = links[left.next];
    left.id = find(left.id, right.id).merged;
    left.next = right.next;
    right.rank = kNoRank;
    if (left.next < count) links[left.next].prev = place;
    update(place);
    if (place > 0) update(left.prev);
  }
  size_t kept = 0;
  for (uint32_t i = 0; i < count; i = links[i].next) (*ids)[kept++] = links[i].id;
  ids->resize(kept);
}

}  // namespace hearth::models
