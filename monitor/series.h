#pragma once
// A number over time: means of short buckets in a ring, so that ten minutes cost the same however
// fast values come. Plain data.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace hearth::monitor {

class Series {
 public:
  static constexpr int64_t kBucketUs = 250'000;
  static constexpr size_t kBuckets = 2400;  ///< ten minutes

  struct Point {
    int64_t time_us = 0;  ///< middle of the bucket
    double value = 0;     ///< mean of what was added
  };

  /// Times before the last bucket count into it; values that are no numbers are left out.
  void add(int64_t time_us, double value);
  size_t size() const { return points_.size(); }
  /// 0: the oldest.
  Point operator[](size_t index) const;
  bool empty() const { return points_.empty(); }
  double last() const { return empty() ? 0 : (*this)[size() - 1].value; }

 private:
  struct Bucket {
    int64_t number = 0;
    double sum = 0;
    int64_t count = 0;
  };
  std::vector<Bucket> points_;
  size_t first_ = 0;  ///< the oldest, once the ring is full
};

/// The value below which a share of `values` lies; 0 without any. Reorders them.
double percentile(std::vector<double>& values, double share);

}  // namespace hearth::monitor
