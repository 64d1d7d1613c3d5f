#pragma once
// Decode and verify steps captured ahead, so that one launch runs what would be some hundred.
// A captured step has launch bounds for a number of rows, its bucket, and runs every step of at
// most as many: the exact numbers are in the index buffers, and rows past them are left alone.
// Results are those of the ops called one by one, bit for bit. Owned by the engine thread.

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/ops.h"

namespace hearth::engine {

class CapturedSteps {
 public:
  /// Calls the ops of a step with these launch bounds.
  using Forward = std::function<void(const kernels::BatchIndex& bounds)>;

  CapturedSteps() = default;
  /// For steps of at most `max_rows` rows, captured now. None where the table cannot; where the
  /// device has no memory left for them, as many as it took.
  CapturedSteps(const kernels::OpTable& ops, const kernels::BatchIndex& batch, int32_t max_rows,
                Forward forward);

  /// Launches a step in which every row is an output row. False, and nothing is launched, where
  /// none was captured that is wide enough: then its ops are to be called one by one.
  bool run(const kernels::BatchIndex& batch);

  /// Launch bounds of the captured steps, ascending, the last one `max_rows` or 64.
  static std::vector<int32_t> buckets(int32_t max_rows);

 private:
  struct Bucket {
    int32_t rows;
    std::unique_ptr<kernels::CapturedStep> step;
  };
  bool capture(const kernels::BatchIndex& batch, Bucket* bucket);

  kernels::OpTable ops_;  // outlives the steps
  Forward forward_;
  std::vector<Bucket> buckets_;
};

}  // namespace hearth::engine
