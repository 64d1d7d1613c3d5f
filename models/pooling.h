#pragma once

#include <cstdint>

namespace hearth::models {

/// How the rows of a text's tokens are combined to one vector.
enum class Pooling : uint8_t {
  kNone,  ///< not combined
  kMean,
  kCls,   ///< the first token's row
  kLast,  ///< the last token's row
  kRank,  ///< of a file: not a vector but a score of two texts; see Ranker
};

}  // namespace hearth::models
