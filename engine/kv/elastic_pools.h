#pragma once
// The pools of one model as memory: addresses for all blocks are reserved at start, extents are
// backed as blocks are first used, and given back when the pools are idle or the bound is lowered.
// Owned by the engine thread.

#include <cstdint>
#include <vector>

#include "engine/kv/kv_cache.h"
#include "engine/kv/memory_plan.h"

namespace hearth::engine {

class ElasticPools {
 public:
  /// All three outlive it.
  ElasticPools(KvCache& kv, BlockMemory& memory, const MemoryPlan& plan);

  uint64_t reserved_bytes() const { return plan_.kv_bytes; }
  uint64_t backed_bytes() const { return memory_.backed_bytes(); }
  /// What may be backed without asking.
  uint64_t bound_bytes() const { return bound_bytes_; }

  /// From now on at most about so much is backed, at least the floor. What is above it is given
  /// back by settle(), as far as no sequence uses it.
  void set_bound(uint64_t bytes);
  /// Evicts cached blocks and gives back extents while more is backed than the bound allows.
  void settle() { kv_.shrink(); }
  /// Gives back what neither sequences nor cached prefixes use, down to the floor.
  void give_back_unused() { kv_.give_back_unused(floor_); }

 private:
  KvCache& kv_;
  BlockMemory& memory_;
  const MemoryPlan& plan_;
  const std::vector<int32_t> floor_;  ///< extents, per group
  uint64_t bound_bytes_;
};

}  // namespace hearth::engine
