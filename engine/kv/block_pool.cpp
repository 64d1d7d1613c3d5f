#include "engine/kv/block_pool.h"

#include <functional>
#include <utility>

#include "engine/kv/prefix_value.h"
#include "kernels/base/check.h"
#include "kernels/base/numbers.h"
#include "kernels/base/sizes.h"

namespace hearth::engine {

BlockPool::BlockPool(int32_t num_blocks, int32_t num_owner_lists, int32_t extent_blocks)
    : extent_blocks_(extent_blocks) {
  HEARTH_CHECK(num_blocks >= 0 && num_owner_lists >= 1 && num_owner_lists <= 256,
               "num_blocks={} num_owner_lists={}", num_blocks, num_owner_lists);
  owner_lists_.resize(num_owner_lists);
  blocks_.resize(num_blocks);
  ready_.reserve(blocks_.size());
  if (extent_blocks_ == 0) {
    for (int32_t block = 0; block < num_blocks; ++block) ready_.push_back(block);  // is a heap
    return;
  }
  extents_.resize((num_blocks + extent_blocks_ - 1) / extent_blocks_);
  limit_ = num_extents();
}

const BlockPool::Block& BlockPool::at(int32_t block) const {
  HEARTH_CHECK(block >= 0 && block < num_blocks(), "block={} of {}", block, num_blocks());
  return blocks_[block];
}

BlockPool::Block& BlockPool::at(int32_t block) {
  return const_cast<Block&>(static_cast<const BlockPool*>(this)->at(block));
}

std::optional<int32_t> BlockPool::allocate(int32_t owner_list) {
  if (ready_.empty()) return std::nullopt;
  std::ranges::pop_heap(ready_, std::greater{});
  const int32_t block = ready_.back();
  ready_.pop_back();
  at(block).refs = 1;
  ++num_held_;
  if (extent_blocks_ > 0) ++extents_[block / extent_blocks_].held;
  put_on(block, owner_list);
  return block;
}

void BlockPool::put_on(int32_t block, int32_t owner_list) {
  HEARTH_CHECK(owner_list >= 0 && std::cmp_less(owner_list, owner_lists_.size()), "owner list {}",
               owner_list);
  at(block).owner_list = static_cast<uint8_t>(owner_list);
  ++owner_list_of(block).held;
}

void BlockPool::set_free(int32_t block) {
  Block& b = at(block);
  --owner_list_of(block).held;
  b.uses = 0;
  b.recompute_us = 0;
  b.continued = false;
  --num_held_;
  if (extent_blocks_ > 0) --extents_[block / extent_blocks_].held;
  ready_.push_back(block);
  std::ranges::push_heap(ready_, std::greater{});
}

// ---- Memory ---------------------------------------------------------------------------------

std::pair<int32_t, int32_t> BlockPool::blocks_of(int32_t extent) const {
  const int32_t first = extent * extent_blocks_;
  return {first, std::min(num_blocks(), first + extent_blocks_)};
}

int32_t BlockPool::num_growable() const {
  const int32_t more = std::min(limit_, num_extents()) - num_backed_;
  if (more <= 0) return 0;
  // Only the last extent may have fewer blocks, and it is backed last.
  const bool last_too = num_backed_ + more == num_extents() && !extents_.back().backed;
  const auto [first, end] = blocks_of(num_extents() - 1);
  return last_too ? (more - 1) * extent_blocks_ + end - first : more * extent_blocks_;
}

std::optional<int32_t> BlockPool::next_to_back() const {
  if (num_growable() == 0) return std::nullopt;
  const auto next = std::ranges::find(extents_, false, &Extent::backed);
  return narrow<int32_t>(next - extents_.begin());
}

std::optional<int32_t> BlockPool::last_empty() const {
  for (int32_t extent = num_extents() - 1; extent >= 0; --extent) {
    if (extents_[extent].backed && extents_[extent].held == 0) return extent;
  }
  return std::nullopt;
}

void BlockPool::set_backed(int32_t extent, bool backed) {
  Extent& e = extents_[extent];
  HEARTH_CHECK(e.backed != backed && e.held == 0, "extent {}: backed={} held={}", extent, e.backed,
               e.held);
  e.backed = backed;
  num_backed_ += backed ? 1 : -1;
  const auto [first, end] = blocks_of(extent);
  if (backed) {
    for (int32_t block = first; block < end; ++block) {
      ready_.push_back(block);
      std::ranges::push_heap(ready_, std::greater{});
    }
    return;
  }
  std::erase_if(ready_, [this, extent](int32_t block) { return block / extent_blocks_ == extent; });
  std::ranges::make_heap(ready_, std::greater{});
}

// ---- References -----------------------------------------------------------------------------

void BlockPool::add_ref(int32_t block) {
  Block& b = at(block);
  if (b.refs == 0) {
    HEARTH_CHECK(b.indexed, "block {} is free", block);
    take_out(block);
    --num_cached_;
  }
  ++b.refs;
}

void BlockPool::release(int32_t block) {
  Block& b = at(block);
  HEARTH_CHECK(b.refs > 0, "block {} has no reference", block);
  if (--b.refs > 0) return;
  if (!b.indexed) return set_free(block);
  b.value = prefix_value(owner_list_of(block).age, b.uses, b.recompute_us, 1);
  b.released = ++releases_;
  ++num_cached_;
  push(block);
}

void BlockPool::set_indexed(int32_t block, int32_t owner_list, double recompute_us) {
  Block& b = at(block);
  HEARTH_CHECK(b.refs > 0 && !b.indexed, "block {}: refs={} indexed={}", block, b.refs, b.indexed);
  b.indexed = true;
  b.recompute_us = recompute_us;
  --owner_list_of(block).held;
  put_on(block, owner_list);
}

void BlockPool::clear_indexed(int32_t block) {
  Block& b = at(block);
  HEARTH_CHECK(b.indexed, "block {} is not indexed", block);
  b.indexed = false;
  b.continued = false;
  if (b.refs > 0) return;
  take_out(block);
  --num_cached_;
  set_free(block);
}

void BlockPool::set_continued(int32_t block, bool continued) {
  Block& b = at(block);
  if (std::exchange(b.continued, continued) == continued) return;
  if (b.refs > 0 || !b.indexed) return;
  continued ? take_out(block) : push(block);
}

std::optional<int32_t> BlockPool::next_evicted() const {
  const OwnerList* fullest = nullptr;
  for (const OwnerList& owner_list : owner_lists_) {
    if (owner_list.heap.empty()) continue;
    if (fullest == nullptr || owner_list.held > fullest->held) fullest = &owner_list;
  }
  if (fullest == nullptr) return std::nullopt;
  return fullest->heap.front();
}

void BlockPool::evict(int32_t block) {
  double& age = owner_list_of(block).age;
  age = std::max(age, at(block).value);
  clear_indexed(block);
}

bool BlockPool::goes_before(int32_t a, int32_t b) const {
  const Block& x = at(a);
  const Block& y = at(b);
  return x.value != y.value ? x.value < y.value : x.released < y.released;
}

void BlockPool::push(int32_t block) {
  Block& b = at(block);
  if (b.continued) return;
  std::vector<int32_t>& heap = owner_list_of(block).heap;
  b.place = size32(heap);
  heap.push_back(block);
  sift(heap, heap.size() - 1);
}

void BlockPool::take_out(int32_t block) {
  Block& b = at(block);
  if (b.place == kNone) return;
  std::vector<int32_t>& heap = owner_list_of(block).heap;
  const size_t place = std::exchange(b.place, kNone);
  const int32_t last = heap.back();
  heap.pop_back();
  if (last == block) return;
  heap[place] = last;
  sift(heap, place);
}

// Moves the block at that place up or down, until the heap is in order.
void BlockPool::sift(std::vector<int32_t>& heap, size_t place) {
  const int32_t block = heap[place];
  const auto put = [&](size_t where, int32_t what) {
    heap[where] = what;
    at(what).place = narrow<int32_t>(where);
  };
  while (place > 0 && goes_before(block, heap[(place - 1) / 2])) {
    put(place, heap[(place - 1) / 2]);
    place = (place - 1) / 2;
  }
  while (true) {
    size_t child = 2 * place + 1;
    if (child >= heap.size()) break;
    if (child + 1 < heap.size() && goes_before(heap[child + 1], heap[child])) ++child;
    if (!goes_before(heap[child], block)) break;
    put(place, heap[child]);
    place = child;
  }
  put(place, block);
}

// A block in use is backed, and the backed ones in no use are ready to be taken.
void BlockPool::check_extents() const {
  int32_t backed_extents = 0, num_backed_blocks = extent_blocks_ == 0 ? num_blocks() : 0;
  for (int32_t extent = 0; extent < num_extents(); ++extent) {
    const Extent& e = extents_[extent];
    const auto [first, end] = blocks_of(extent);
    int32_t held = 0;
    for (int32_t block = first; block < end; ++block) {
      held += at(block).refs > 0 || at(block).indexed ? 1 : 0;
    }
    HEARTH_CHECK(e.held == held && (e.backed || held == 0), "extent {}: {} counted, {} held, {}",
                 extent, e.held, held, e.backed ? "backed" : "not backed");
    if (!e.backed) continue;
    ++backed_extents;
    num_backed_blocks += end - first;
  }
  HEARTH_CHECK(backed_extents == num_backed_, "{} extents counted, {} backed", num_backed_,
               backed_extents);
  HEARTH_CHECK(num_ready() + num_held_ == num_backed_blocks, "ready={} held={} backed={}",
               num_ready(), num_held_, num_backed_blocks);
}

void BlockPool::check_integrity(std::span<const int32_t> expected_refs) const {
  HEARTH_CHECK(expected_refs.size() == blocks_.size());
  int32_t used = 0;
  for (int32_t block = 0; block < num_blocks(); ++block) {
    const int32_t expected = expected_refs[block];
    HEARTH_CHECK(at(block).refs == expected, "block {}: {} references, {} exist", block,
                 at(block).refs, expected);
    if (expected > 0) ++used;
  }
  for (const int32_t block : ready_) {
    HEARTH_CHECK(at(block).refs == 0 && !at(block).indexed && backed(block),
                 "free block {}: refs={} indexed={} backed={}", block, at(block).refs,
                 at(block).indexed, backed(block));
  }
  check_extents();
  int32_t cached = 0;
  std::vector<int32_t> held(owner_lists_.size(), 0);
  for (int32_t block = 0; block < num_blocks(); ++block) {
    const Block& b = at(block);
    held[b.owner_list] += b.refs > 0 || b.indexed ? 1 : 0;
    const bool is_cached = b.refs == 0 && b.indexed;
    cached += is_cached ? 1 : 0;
    HEARTH_CHECK((b.place != kNone) == (is_cached && !b.continued),
                 "block {}: refs={} indexed={} continued={} place={}", block, b.refs, b.indexed,
                 b.continued, b.place);
  }
  for (size_t i = 0; i < owner_lists_.size(); ++i) {
    const std::vector<int32_t>& heap = owner_lists_[i].heap;
    for (size_t place = 0; place < heap.size(); ++place) {
      const Block& b = at(heap[place]);
      HEARTH_CHECK(b.owner_list == i && std::cmp_equal(b.place, place) &&
                       (place == 0 || !goes_before(heap[place], heap[(place - 1) / 2])),
                   "block {} at {} of owner list {}: place={} owner_list={}", heap[place], place, i,
                   b.place, b.owner_list);
    }
    HEARTH_CHECK(held[i] == owner_lists_[i].held, "owner list {}: {} counted, {} held", i, held[i],
                 owner_lists_[i].held);
  }
  HEARTH_CHECK(cached == num_cached_, "cached={} counted={}", num_cached_, cached);
  HEARTH_CHECK(num_free() + used + cached == num_blocks(), "free={} used={} cached={} of {}",
               num_free(), used, cached, num_blocks());
}

}  // namespace hearth::engine
