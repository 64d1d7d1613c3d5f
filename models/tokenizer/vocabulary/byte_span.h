#pragma once

#include <cstddef>

namespace hearth::models {

/// Bytes of a text.
struct ByteSpan {
  size_t begin = 0;
  size_t end = 0;  ///< one past the last
  bool operator==(const ByteSpan&) const = default;
};

}  // namespace hearth::models
