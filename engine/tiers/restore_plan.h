#pragma once
// How a stored prefix is brought back: loaded, computed, or both at once from its two ends until
// they meet. Pure arithmetic over measured rates.
//
// KV of a block depends on nothing behind it, so its front can be computed while its end is loaded:
// computing goes on in ordinary prefill chunks, loading from the last chunk towards the front.
// Where one of the two takes a small part of the other's time it is done alone: both would share
// the machine (on a CPU loading uses the cores) for little. Source: Jin et al. 2024, "Compute or
// Load KV Cache? Why Not Both?" (Cake).

#include <cstdint>

#include "engine/cost/step_cost.h"

namespace hearth::engine {

/// Blocks [first_block, end_block) of a prompt are stored, and not in memory.
struct StoredPrefix {
  int32_t block_size = 0;  ///< tokens
  int32_t first_block = 0;
  int32_t end_block = 0;
  double load_us = 0;  ///< of one block
};

enum class RestoreWay { kCompute, kLoad, kBoth };

/// The block up to which computing gets, from the front, while those behind it are loaded.
int32_t meeting_block(const StepCost& cost, const StoredPrefix& prefix);

/// The fastest of the three; both only where that saves a fifth of the faster one alone, and two
/// steps: so long may it take until a meeting is noticed.
RestoreWay choose_way(const StepCost& cost, const StoredPrefix& prefix);

}  // namespace hearth::engine
