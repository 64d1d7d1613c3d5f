#include "engine/block_pool.h"

#include "kernels/base/check.h"

namespace hearth::engine {

BlockPool::BlockPool(int32_t num_blocks) {
  HEARTH_CHECK(num_blocks >= 0, "num_blocks={}", num_blocks);
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

std::optional<int32_t> BlockPool::allocate() {
  if (free_.empty()) return std::nullopt;
  const int32_t block = free_.back();
  free_.pop_back();
  at(block).refs = 1;
  return block;
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
    free_.push_back(block);
  }
}

void BlockPool::set_indexed(int32_t block) {
  Block& b = at(block);
  HEARTH_CHECK(b.refs > 0 && !b.indexed, "block {}: refs={} indexed={}", block, b.refs, b.indexed);
  b.indexed = true;
}

void BlockPool::clear_indexed(int32_t block) {
  Block& b = at(block);
  HEARTH_CHECK(b.indexed, "block {} is not indexed", block);
  b.indexed = false;
  if (b.refs > 0) return;
  unlink(block);
  free_.push_back(block);
}

std::optional<int32_t> BlockPool::oldest_cached() const {
  if (oldest_ == kNone) return std::nullopt;
  return oldest_;
}

void BlockPool::link_newest(int32_t block) {
  Block& b = at(block);
  b.older = newest_;
  b.newer = kNone;
  if (newest_ != kNone) {
    at(newest_).newer = block;
  } else {
    oldest_ = block;
  }
  newest_ = block;
  ++num_cached_;
}

void BlockPool::unlink(int32_t block) {
  Block& b = at(block);
  (b.older != kNone ? at(b.older).newer : oldest_) = b.newer;
  (b.newer != kNone ? at(b.newer).older : newest_) = b.older;
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
  int32_t previous = kNone;
  for (int32_t block = oldest_; block != kNone; block = at(block).newer) {
    HEARTH_CHECK(at(block).refs == 0 && at(block).indexed && at(block).older == previous,
                 "cached block {}: refs={} indexed={}", block, at(block).refs, at(block).indexed);
    HEARTH_CHECK(++cached <= num_blocks(), "the list of cached blocks has a loop");
    previous = block;
  }
  HEARTH_CHECK(previous == newest_ && cached == num_cached_, "cached={} counted={}", num_cached_,
               cached);
  HEARTH_CHECK(num_free() + used + cached == num_blocks(), "free={} used={} cached={} of {}",
               num_free(), used, cached, num_blocks());
}

}  // namespace hearth::engine
