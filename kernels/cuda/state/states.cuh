#pragma once
// What the kernels of the recurrent ops share: a step's sequences, and where their states are.

#include "kernels/cuda/device.cuh"
#include "kernels/ops/recurrent_ops.h"

namespace hearth::kernels {

/// The rows of a step by sequence, in device memory (BatchIndex).
struct StateRows {
  const int32_t* counts;
  const int32_t* seq_idx;
  const int32_t* query_start;
  const StateStep* states;
};
inline StateRows state_rows(const BatchIndex& batch) {
  return {batch.counts, batch.seq_idx, batch.query_start, batch.states};
}

/// One sequence's walk: its replayed rows, then its own, numbered from 0. The state that stays is
/// the one after `stay` rows; rows from there on are drafts.
struct Walk {
  StateStep step;
  int first_row;  ///< the row of the step that follows the replayed ones
  int stay;
  int total;

  __device__ bool replayed(int i) const { return i < step.replay; }
  __device__ bool draft(int i) const { return i >= stay; }
  /// A kept row if replayed, else a row of the step.
  __device__ int64_t row(int i) const {
    return replayed(i) ? step.replay_first + i : first_row + i - step.replay;
  }
  /// The kept row that draft i is stored in.
  __device__ int64_t kept(int i) const { return step.keep_first + i - stay; }
  __device__ bool saves_after(int rows) const {
    return step.saved >= 0 && rows == step.saved_after;
  }
};
__device__ inline Walk walk_of(const StateRows& rows, int seq) {
  const StateStep step = rows.states[seq];
  const int first = rows.query_start[seq];
  return {step, first, step.replay + step.advance, step.replay + rows.query_start[seq + 1] - first};
}

/// StatePart::of on the device.
__device__ inline float* state_in(const StatePart& part, int64_t block) {
  return reinterpret_cast<float*>(part.base + block * part.block_bytes + part.offset);
}

__device__ inline const float* row_of(const RowsView& view, int64_t row) {
  return view.data + row * view.stride;
}

/// In double: how much a state decays is raised to the power of a text's length.
__device__ inline double softplus_of(double x) { return x > 20 ? x : log1p(exp(x)); }

}  // namespace hearth::kernels
