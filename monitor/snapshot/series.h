#pragma once
// A number over time: means of short buckets in a ring, so that ten minutes take the same memory
// however often values arrive. Plain data.

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
    double value = 0;     ///< mean of the added values
  };

  /// Values older than the last bucket are added to it; values that are not finite are ignored.
  void add(int64_t time_us, double value);
  size_t size() const { return points_.size(); }
  /// Index 0 is the oldest point.
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
  size_t first_ = 0;  ///< index of the oldest, once the ring is full
};

/// The value below which a `share` of `values` lies; 0 if there are none. Reorders them.
double percentile(std::vector<double>& values, double share);

}  // namespace hearth::monitor
