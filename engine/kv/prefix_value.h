#pragma once
// The value of a cached piece of KV: the one rule by which memory (BlockPool) and disk
// (ChunkRanking) choose what to evict. Pure arithmetic.

#include <algorithm>
#include <cstdint>

#include "kernels/base/numbers.h"

namespace hearth::engine {

/// Uses counted at most. A piece that was popular once is evicted after that many turnovers of its
/// owner's cache.
inline constexpr int64_t kMaxUsesCounted = 32;

/// Recompute cost x likelihood of reuse per byte, on a scale that rises as the cache turns over:
///
///   value = age + min(uses, kMaxUsesCounted) x recompute_us / bytes
///
///   age           of the owner's cache at the piece's last use: the value of the piece evicted
///                 last (0 before the first eviction). So newer pieces overtake a piece that
///                 is not used any more, the less valuable the sooner.
///   uses          sequences that found it, plus one if any ended there: a piece that was used
///                 before is likely to be used again. 0: no reuse is expected.
///   recompute_us  time to compute its tokens again, by measured rates; grows with their position,
///                 as attention looks back further.
///   bytes         its size; 1 if all pieces have the same size.
///
/// The least valuable is evicted first; of equal ones, the one used longest ago. With a cost of 0
/// everywhere, last use alone decides.
/// Source: GreedyDual-Size with Frequency, Cherkasova 1998 (HPL-98-69R1); the bound on uses is
/// ours.
inline double prefix_value(double age, int64_t uses, double recompute_us, double bytes) {
  const auto counted = as_double(std::clamp<int64_t>(uses, 0, kMaxUsesCounted));
  return age + counted * recompute_us / std::max(bytes, 1.0);
}

}  // namespace hearth::engine
