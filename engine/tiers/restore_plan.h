#pragma once
// How to restore a stored prefix: by loading, by computing, or by both at once from its two ends
// until they meet. Pure arithmetic over measured rates.
//
// The KV of a block does not depend on later blocks, so the front of a prefix can be computed while
// its end is loaded: computing proceeds in ordinary prefill chunks, loading from the last chunk
// towards the front. If one of the two is much faster, it is used alone, because both share the
// machine (on a CPU loading uses the cores). Source: Jin et al. 2024, "Compute or Load KV Cache?
// Why Not Both?" (Cake).

#include <cstdint>

#include "engine/cost/step_cost.h"

namespace hearth::engine {

/// Blocks [first_block, end_block) of a prompt that are stored and not in memory.
struct StoredPrefix {
  int32_t block_size = 0;  ///< tokens
  int32_t first_block = 0;
  int32_t end_block = 0;
  double load_us = 0;  ///< of one block
};

enum class RestoreWay { kCompute, kLoad, kBoth };

/// The block up to which the front is computed while the blocks after it are loaded.
int32_t meeting_block(const StepCost& cost, const StoredPrefix& prefix);

/// The fastest of the three. Both only if that saves a fifth of the faster one alone and at least
/// two steps, the time until a meeting may be noticed.
RestoreWay choose_way(const StepCost& cost, const StoredPrefix& prefix);

}  // namespace hearth::engine
