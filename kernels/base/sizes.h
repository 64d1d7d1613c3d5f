#pragma once
// Counts and indices of tokens, rows, blocks and sequences are int32_t; containers have size_t.

#include <cstdint>

namespace hearth {

/// The size of a container as a count.
template <typename Container>
constexpr int32_t size32(const Container& container) {
  return static_cast<int32_t>(container.size());
}

}  // namespace hearth
