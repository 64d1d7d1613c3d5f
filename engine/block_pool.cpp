#include "engine/block_pool.h"

#include "kernels/base/check.h"

namespace hearth::engine {

BlockPool::BlockPool(int32_t num_blocks, int32_t num_shelves) {
  HEARTH_CHECK(num_blocks >= 0 && num_shelves >= 1 && num_shelves <= 256,
               "num_blocks={} num_shelves={}", num_blocks, num_shelves);
  shelves_.resize(static_cast<size_t>(num_shelves));
  blocks_.resize(static_cast<size_t>(num_blocks));
  free_.reserve(blocks_.size());
  for (int32_t block = num_blocks - 1; block >= 0; --block) free_.push_back(block);
}

const BlockPool::Block& BlockPool::at(int32_t block) const {
  HEARTH_CHECK(block >= 0 && block < num_blocks(), "block={} of {}", block, num_blocks());
  return blocks_[static_cast<size_t>(block)];
}

BlockPool::Block& BlockPool::at(int32_t block) {
  return const_cast<Block&>(static_cast<const BlockPool*>(this)->at(block));
}

std::optional<int32_t> BlockPool::allocate(int32_t shelf) {
  if (free_.empty()) return std::nullopt;
  const int32_t block = free_.back();
  free_.pop_back();
  at(block).refs = 1;
  put_on(block, shelf);
  return block;
}

void BlockPool::put_on(int32_t block, int32_t shelf) {
  HEARTH_CHECK(shelf >= 0 && static_cast<size_t>(shelf) < shelves_.size(), "shelf {}", shelf);
  at(block).shelf = static_cast<uint8_t>(shelf);
  ++shelf_of(block).held;
}

void BlockPool::set_free(int32_t block) {
  --shelf_of(block).held;
  free_.push_back(block);
}

void BlockPool::add_ref(int32_t block) {
  Block& b = at(block);
  if (b.refs == 0) {
    HEARTH_CHECK(b.indexed, "block {} is free", block);
    unlink(block);
  }
  ++b.refs;
}

void BlockPool::release(int32_t block) {
  Block& b = at(block);
  HEARTH_CHECK(b.refs > 0, "block {} has no reference", block);
  if (--b.refs > 0) return;
  if (b.indexed) {
    link_newest(block);
  } else {
    set_free(block);
  }
}

void BlockPool::set_indexed(int32_t block, int32_t shelf) {
  Block& b = at(block);
  HEARTH_CHECK(b.refs > 0 && !b.indexed, "block {}: refs={} indexed={}", block, b.refs, b.indexed);
  b.indexed = true;
  --shelf_of(block).held;
  put_on(block, shelf);
}

void BlockPool::clear_indexed(int32_t block) {
  Block& b = at(block);
  HEARTH_CHECK(b.indexed, "block {} is not indexed", block);
  b.indexed = false;
  if (b.refs > 0) return;
  unlink(block);
  set_free(block);
}

std::optional<int32_t> BlockPool::next_evicted() const {
  const Shelf* fullest = nullptr;
  for (const Shelf& shelf : shelves_) {
    if (shelf.oldest == kNone) continue;
    if (fullest == nullptr || shelf.held > fullest->held) fullest = &shelf;
  }
  if (fullest == nullptr) return std::nullopt;
  return fullest->oldest;
}

void BlockPool::link_newest(int32_t block) {
  Block& b = at(block);
  Shelf& shelf = shelf_of(block);
  b.older = shelf.newest;
  b.newer = kNone;
  (b.older != kNone ? at(b.older).newer : shelf.oldest) = block;
  shelf.newest = block;
  ++num_cached_;
}

void BlockPool::unlink(int32_t block) {
  Block& b = at(block);
  Shelf& shelf = shelf_of(block);
  (b.older != kNone ? at(b.older).newer : shelf.oldest) = b.newer;
  (b.newer != kNone ? at(b.newer).older : shelf.newest) = b.older;
  b.older = b.newer = kNone;
  --num_cached_;
}

void BlockPool::check_integrity(std::span<const int32_t> expected_refs) const {
  HEARTH_CHECK(expected_refs.size() == blocks_.size());
  int32_t used = 0;
  for (int32_t block = 0; block < num_blocks(); ++block) {
    const int32_t expected = expected_refs[static_cast<size_t>(block)];
    HEARTH_CHECK(at(block).refs == expected, "block {}: {} references, {} exist", block,
                 at(block).refs, expected);
    if (expected > 0) ++used;
  }
  for (const int32_t block : free_) {
    HEARTH_CHECK(at(block).refs == 0 && !at(block).indexed, "free block {}: refs={} indexed={}",
                 block, at(block).refs, at(block).indexed);
  }
  int32_t cached = 0;
  std::vector<int32_t> held(shelves_.size(), 0);
  for (const Block& block : blocks_) held[block.shelf] += block.refs > 0 || block.indexed ? 1 : 0;
  for (size_t i = 0; i < shelves_.size(); ++i) {
    const Shelf& shelf = shelves_[i];
    int32_t previous = kNone;
    for (int32_t block = shelf.oldest; block != kNone; block = at(block).newer) {
      HEARTH_CHECK(at(block).refs == 0 && at(block).indexed && at(block).older == previous &&
                       at(block).shelf == i,
                   "cached block {}: refs={} indexed={} shelf={}", block, at(block).refs,
                   at(block).indexed, at(block).shelf);
      HEARTH_CHECK(++cached <= num_blocks(), "the list of cached blocks has a loop");
      previous = block;
    }
    HEARTH_CHECK(previous == shelf.newest && held[i] == shelf.held, "shelf {}: {} counted, {} held",
                 i, shelf.held, held[i]);
  }
  HEARTH_CHECK(cached == num_cached_, "cached={} counted={}", num_cached_, cached);
  HEARTH_CHECK(num_free() + used + cached == num_blocks(), "free={} used={} cached={} of {}",
               num_free(), used, cached, num_blocks());
}

}  // namespace hearth::engine
