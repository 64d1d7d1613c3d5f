#include "monitor/snapshot/series.h"

#include <algorithm>
#include <cmath>

#include "kernels/base/numbers.h"

namespace hearth::monitor {

void Series::add(int64_t time_us, double value) {
  if (!std::isfinite(value)) return;
  const int64_t number = time_us / kBucketUs;
  if (!points_.empty()) {
    const size_t newest = (first_ + points_.size() - 1) % points_.size();
    Bucket& last = points_[newest];
    if (number <= last.number) {
      last.sum += value;
      ++last.count;
      return;
    }
  }
  const Bucket bucket{number, value, 1};
  if (points_.size() < kBuckets) {
    points_.push_back(bucket);
  } else {
    points_[first_] = bucket;
    first_ = (first_ + 1) % kBuckets;
  }
}

Series::Point Series::operator[](size_t index) const {
  const Bucket& bucket = points_[(first_ + index) % points_.size()];
  return {bucket.number * kBucketUs + kBucketUs / 2, bucket.sum / as_double(bucket.count)};
}

double percentile(std::vector<double>& values, double share) {
  if (values.empty()) return 0;
  const auto at = std::lround(share * as_double(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[at];
}

}  // namespace hearth::monitor
