#pragma once

#include <cstdint>

namespace hearth::models {

/// How the rows of a text's tokens become one vector.
enum class Pooling : uint8_t {
  kNone,  ///< they do not
  kMean,
  kCls,   ///< the first token's row
  kLast,  ///< the last token's row
};

}  // namespace hearth::models
