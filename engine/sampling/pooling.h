#pragma once
// Collects the rows of a text, step by step, into one vector. Rows are added in double, in order of
// position, so the result does not depend on how the text was divided into steps.

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/base/result.h"
#include "models/pooling.h"

namespace hearth::engine {

class PooledRows {
 public:
  /// Adds the row of a token. The rows of a text come in order, and begin again at position 0 if
  /// the text is computed again. `size`: tokens of the text.
  void add(models::Pooling pooling, int32_t position, int32_t size, std::span<const float> row);

  /// The vector, once all rows were added. kInternal if a value is not finite.
  Result<std::vector<float>> take(models::Pooling pooling, int32_t size, bool normalize);

 private:
  std::vector<double> sum_;
};

}  // namespace hearth::engine
