#include "engine/sampling/pooling.h"

#include <fmt/core.h>

#include <cmath>
#include <utility>

#include "kernels/base/check.h"

namespace hearth::engine {

using models::Pooling;

void PooledRows::add(Pooling pooling, int32_t position, int32_t size, std::span<const float> row) {
  if (position == 0) sum_.assign(row.size(), 0.0);
  const bool wanted = pooling == Pooling::kMean || (pooling == Pooling::kCls && position == 0) ||
                      (pooling == Pooling::kLast && position + 1 == size);
  if (!wanted) return;
  if (pooling != Pooling::kMean) sum_.assign(row.size(), 0.0);
  HEARTH_CHECK(sum_.size() == row.size(), "{} values, want {}", row.size(), sum_.size());
  for (size_t i = 0; i < row.size(); ++i) sum_[i] += row[i];
}

Result<std::vector<float>> PooledRows::take(Pooling pooling, int32_t size, bool normalize) {
  std::vector<double> sum = std::exchange(sum_, {});
  const double count = pooling == Pooling::kMean ? size : 1;
  double squares = 0;
  for (double& value : sum) {
    value /= count;
    squares += value * value;
  }
  if (!std::isfinite(squares)) {
    return Error::internal("the model computed a row with values that are not finite");
  }
  // A vector of zeros has no direction and stays unchanged.
  const double scale = normalize && squares > 0 ? 1 / std::sqrt(squares) : 1;
  std::vector<float> out;
  out.reserve(sum.size());
  for (const double value : sum) out.push_back(static_cast<float>(value * scale));
  return out;
}

}  // namespace hearth::engine
