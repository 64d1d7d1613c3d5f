#include "engine/steps/captured_steps.h"

#include <algorithm>

namespace hearth::engine {
namespace {

/// Beyond this, a step computes for so long that its launches are hidden.
constexpr int32_t kMaxRows = 64;
/// Closely spaced for few rows, where the empty blocks of a larger launch bound cost most.
constexpr int32_t kBuckets[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, kMaxRows};

}  // namespace

std::vector<int32_t> CapturedSteps::buckets(int32_t max_rows) {
  const int32_t last = std::min(max_rows, kMaxRows);
  std::vector<int32_t> all;
  for (const int32_t rows : kBuckets) {
    if (rows < last) all.push_back(rows);
  }
  if (last > 0) all.push_back(last);
  return all;
}

CapturedSteps::CapturedSteps(const kernels::OpTable& ops, const kernels::BatchIndex& batch,
                             int32_t max_rows, Forward forward)
    : ops_(ops), forward_(std::move(forward)) {
  if (ops_.begin_capture == nullptr) return;
  for (const int32_t rows : buckets(max_rows)) {
    Bucket bucket{rows, nullptr};
    if (!capture(batch, &bucket)) return;
    buckets_.push_back(std::move(bucket));
  }
}

bool CapturedSteps::capture(const kernels::BatchIndex& batch, Bucket* bucket) {
  kernels::BatchIndex bounds = batch;
  bounds.num_tokens = bounds.num_seqs = bounds.num_outputs = bucket->rows;
  bucket->step.reset();  // the memory of the old one first
  ops_.begin_capture(ops_.state.get());
  forward_(bounds);
  bucket->step = ops_.end_capture(ops_.state.get());
  return bucket->step != nullptr;
}

bool CapturedSteps::run(const kernels::BatchIndex& batch) {
  if (batch.num_outputs != batch.num_tokens) return false;
  const auto bucket = std::ranges::lower_bound(buckets_, batch.num_tokens, {}, &Bucket::rows);
  if (bucket == buckets_.end()) return false;
  if (ops_.replay(ops_.state.get(), *bucket->step)) return true;
  // Another model of this device has moved the ops' scratch since.
  if (!capture(batch, &*bucket)) {
    buckets_.clear();
    return false;
  }
  return ops_.replay(ops_.state.get(), *bucket->step);
}

}  // namespace hearth::engine
