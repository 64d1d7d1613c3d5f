// How KvCache comes by blocks: free ones, more memory, and cached prefixes that are evicted; and
// how memory is given back.

#include <algorithm>
#include <optional>

#include "engine/kv/kv_cache.h"
#include "kernels/base/check.h"

namespace hearth::engine {

bool KvCache::can_take(int32_t group, int32_t count) {
  const BlockPool& pool = pools_[group];
  if (count > pool.num_available()) return false;
  while (pool.num_ready() + pool.num_cached() < count) {
    if (!grow(group)) return false;
  }
  return true;
}

int32_t KvCache::take_block(int32_t group, NodeId tip) {
  BlockPool& pool = pools_[group];
  if (pool.num_ready() == 0 && !grow(group)) {
    HEARTH_CHECK(evict_one(group), "group {} has no block left", group);
  }
  return *pool.allocate(owner_list_of(tip));
}

bool KvCache::evict_one(int32_t group) {
  BlockPool& pool = pools_[group];
  const std::optional<int32_t> evicted = pool.next_evicted();
  if (!evicted) return false;
  const NodeId node = index_.detach(group, *evicted);
  pool.evict(*evicted);
  if (!sparse(group)) {
    // Without this block the node can serve no lookup, so its blocks of other groups are useless,
    // too. They have no references: a sequence that holds them holds this one.
    HEARTH_CHECK(index_.num_children(node) == 0, "evicting node {} under its children", node);
    for (int32_t other = 0; other < num_groups(); ++other) {
      const int32_t block = index_.block(node, other);
      if (block == kNoBlock) continue;
      index_.detach(other, block);
      pools_[other].clear_indexed(block);
    }
  }
  lost_last_child(index_.prune(node));
  return true;
}

void KvCache::set_limits(std::span<const int32_t> extents) {
  for (int32_t group = 0; group < num_groups(); ++group) pools_[group].set_limit(extents[group]);
}

bool KvCache::bounded() const {
  return std::ranges::any_of(
      pools_, [](const BlockPool& pool) { return pool.limit() < pool.num_extents(); });
}

bool KvCache::grow(int32_t group) {
  BlockPool& pool = pools_[group];
  const std::optional<int32_t> extent = pool.next_to_back();
  if (!extent) return false;
  const auto [first, end] = pool.blocks_of(*extent);
  if (memory_ != nullptr && !memory_->back(group, first, end)) {
    pool.set_limit(pool.num_backed_extents());
    return false;
  }
  pool.set_backed(*extent, true);
  return true;
}

void KvCache::give_back(int32_t group, int32_t extent) {
  const auto [first, end] = pools_[group].blocks_of(extent);
  pools_[group].set_backed(extent, false);
  if (memory_ != nullptr) memory_->give_back(group, first, end);
}

void KvCache::shrink() {
  for (int32_t group = 0; group < num_groups(); ++group) {
    while (pools_[group].over_limit()) {
      if (const std::optional<int32_t> extent = pools_[group].last_empty()) {
        give_back(group, *extent);
      } else if (!evict_one(group)) {
        break;
      }
    }
  }
}

void KvCache::give_back_unused(std::span<const int32_t> keep) {
  for (int32_t group = 0; group < num_groups(); ++group) {
    while (pools_[group].num_backed_extents() > keep[group]) {
      const std::optional<int32_t> extent = pools_[group].last_empty();
      if (!extent) break;
      give_back(group, *extent);
    }
  }
}

}  // namespace hearth::engine
