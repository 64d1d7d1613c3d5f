#pragma once
// Divides memory among the KV pools of the resident models. Pure arithmetic.

#include <cstdint>
#include <span>
#include <vector>

namespace hearth::broker {

/// The pools of one worker.
struct PoolUse {
  uint64_t floor_bytes = 0;  ///< always its own
  uint64_t reserved_bytes = 0;
  uint64_t backed_bytes = 0;
  bool idle = false;
  bool is_short = false;  ///< its requests wait for blocks
  int64_t last_used_us = 0;

  uint64_t taken_bytes() const;  ///< that count as its own: backed, or the floor if that is more
  /// That it would give back if asked.
  uint64_t spare_bytes() const { return idle ? taken_bytes() - floor_bytes : 0; }
};

/// How much memory may back each pool. Idle pools give back `reclaim` bytes together, those unused
/// longest first. `left`, the memory that is not taken, is divided among the pools whose
/// requests wait, or else among all; none gets more than it has reserved. A pool that is asked to
/// give back gets nothing.
std::vector<uint64_t> share_pools(std::span<const PoolUse> pools, uint64_t left, uint64_t reclaim);

}  // namespace hearth::broker
