#pragma once
// What a kept piece of KV is worth: the one rule by which memory (BlockPool) and disk
// (ChunkRanking) choose what goes when room is wanted. Pure arithmetic.

#include <algorithm>
#include <cstdint>

namespace hearth::engine {

/// Uses counted at most. What was popular once is forgotten after that many turnovers of all that
/// its owner keeps.
inline constexpr int64_t kMaxUsesCounted = 32;

/// Recompute cost x likelihood of reuse per byte, on a scale that rises as the cache turns over:
///
///   value = age + min(uses, kMaxUsesCounted) x recompute_us / bytes
///
///   age           of the owner's cache when the piece was used last: the value of what was evicted
///                 last (0 while nothing was). So a piece that is not used any more is overtaken by
///                 what comes, the sooner the less it is worth.
///   uses          sequences that found it, and one for those that ended there: what was used
///                 before is used again. 0: nobody is expected to come back to it.
///   recompute_us  to compute its tokens anew, by measured rates; grows with their position, as
///                 attention looks back further.
///   bytes         room that it takes. Where all pieces are of one size, 1 will do.
///
/// The least valuable goes first; of equal ones, the one used longest ago. With a cost of 0
/// everywhere this is last use alone.
/// Source: GreedyDual-Size with Frequency, Cherkasova 1998 (HPL-98-69R1); the bound on uses is
/// ours.
inline double prefix_value(double age, int64_t uses, double recompute_us, double bytes) {
  const auto counted = static_cast<double>(std::clamp<int64_t>(uses, 0, kMaxUsesCounted));
  return age + counted * recompute_us / std::max(bytes, 1.0);
}

}  // namespace hearth::engine
