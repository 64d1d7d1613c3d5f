#pragma once
// The rows of a text as they come, step by step, and the one vector they become. A row is added in
// double, in order of position, so that it does not matter how the text was cut into steps.

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/base/result.h"
#include "models/pooling.h"

namespace hearth::engine {

class PooledRows {
 public:
  /// The row of a token; those of a text come in order, and begin again at position 0 where it is
  /// computed anew. `size`: tokens of the text.
  void add(models::Pooling pooling, int32_t position, int32_t size, std::span<const float> row);

  /// All have come. kInternal where a value is not finite.
  Result<std::vector<float>> take(models::Pooling pooling, int32_t size, bool normalize);

 private:
  std::vector<double> sum_;
};

}  // namespace hearth::engine
