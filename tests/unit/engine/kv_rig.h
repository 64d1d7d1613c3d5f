#pragma once
// Steps of tests of the KV cache.

#include <doctest/doctest.h>

#include <initializer_list>
#include <numeric>
#include <span>
#include <vector>

#include "engine/kv/kv_cache.h"

namespace hearth::engine {

inline std::vector<int32_t> numbers(int32_t count, int32_t first = 0) {
  std::vector<int32_t> out(static_cast<size_t>(count));
  std::iota(out.begin(), out.end(), first);
  return out;
}

/// Reserves and stores everything.
inline std::vector<BlockCopy> compute(KvCache& kv, SequenceBlocks& seq,
                                      std::span<const int32_t> tokens) {
  std::vector<BlockCopy> copies;
  const auto size = static_cast<int32_t>(tokens.size());
  REQUIRE(kv.reserve(seq, size, copies));
  kv.store(seq, tokens, size);
  return copies;
}

inline void check(const KvCache& kv, std::initializer_list<const SequenceBlocks*> live) {
  kv.check_integrity(std::vector<const SequenceBlocks*>(live));
}

}  // namespace hearth::engine
