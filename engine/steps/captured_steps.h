#pragma once
// Decode and verify steps captured in advance, so that one launch replaces some hundred. A captured
// step has launch bounds for a number of rows, its bucket, and serves every step of at most that
// many: the exact numbers are in the index buffers, and rows beyond them are not touched. Results
// are bit for bit those of the ops called one by one. Owned by the engine thread.

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
  /// Captures steps of at most `max_rows` rows. None if the table cannot capture; fewer if the
  /// device runs out of memory.
  CapturedSteps(const kernels::OpTable& ops, const kernels::BatchIndex& batch, int32_t max_rows,
                Forward forward);

  /// Launches a step in which every row is an output row. False, and nothing is launched, if no
  /// captured step is wide enough: then call its ops one by one.
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
