#pragma once
// Counts and indices of tokens, rows, blocks and sequences are int32_t; container sizes are size_t.

#include <cstdint>

namespace hearth {

/// The size of a container as an int32_t count.
template <typename Container>
constexpr int32_t size32(const Container& container) {
  return static_cast<int32_t>(container.size());
}

}  // namespace hearth
