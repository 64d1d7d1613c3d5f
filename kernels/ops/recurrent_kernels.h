#pragma once
// The recurrent ops by table, and what their implementations share. Private to kernels/.

#include <cmath>
#include <cstdint>

#include "kernels/ops/recurrent_ops.h"

namespace hearth::kernels {

void check_args(const ShortConvArgs& args);
void check_args(const HeadScanArgs& args);
void check_args(const ChannelScanArgs& args);
/// `what` names the tensor; `rows` are those that it has at least.
void check_state_rows(const TensorView& view, int64_t rows, int64_t cols, const char* what);
void check_state_vector(const Weight* weight, int64_t cols, const char* what);
/// Checks what the states' steps ask for; the index must be in host memory.
void check_state_steps(const BatchIndex& batch);

/// The number of the step's sequences: the exact count if the index holds one.
int32_t num_seqs(const BatchIndex& batch);

inline double softplus(double x) { return x > 20 ? x : std::log1p(std::exp(x)); }
inline float rounded(double x) { return static_cast<float>(x); }
inline double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

/// The head of q and k that belongs to `head`.
inline int32_t key_head(const HeadScanArgs& args, int32_t head) {
  return args.tiled ? head % args.num_k_heads : head / (args.num_heads / args.num_k_heads);
}
/// d of a head, and of its state's row `i` if each has one.
inline double head_step(const HeadScanArgs& args, int32_t head, const float* dt, int32_t i) {
  if (args.dt_bias == nullptr) return 1;
  const int64_t at = args.row_decays ? int64_t{head} * args.k_dim + i : head;
  return softplus(double{dt[at]} + double{args.dt_bias->vector[at]});
}
/// What S, or row `i` of it, is multiplied by.
inline float head_decay(const HeadScanArgs& args, int32_t head, const float* dt, int32_t i) {
  if (args.erased != nullptr) return dt[int64_t{head} * args.k_dim + i];
  return rounded(std::exp(double{args.a->vector[head]} * head_step(args, head, dt, i)));
}
/// What v, or its difference from S^T k, is multiplied by.
inline float head_weight(const HeadScanArgs& args, int32_t head, const float* dt,
                         const float* beta) {
  return rounded(beta == nullptr ? head_step(args, head, dt, 0) : sigmoid(beta[head]));
}
/// What q or k of one head is multiplied by.
double key_scale(const HeadScanArgs& args, const float* key, double scale);

/// One row of a scan's inputs, of the step or kept.
struct HeadRow {
  const float *k, *v, *dt, *beta;  ///< dt null: none; beta null: no delta rule
  const float *erased, *removed;   ///< null: none
};
HeadRow head_row(const HeadScanArgs& args, int64_t row);
HeadRow kept_head_row(const HeadScanArgs& args, int64_t kept);
void keep_head_row(const HeadScanArgs& args, int64_t row, int64_t kept);

struct ChannelRow {
  const float *x, *dt, *b;
};
ChannelRow channel_row(const ChannelScanArgs& args, int64_t row);
ChannelRow kept_channel_row(const ChannelScanArgs& args, int64_t kept);
void keep_channel_row(const ChannelScanArgs& args, int64_t row, int64_t kept);

/// Calls step(kept row) for each replayed row and step(row, is_draft) for each of the sequence's
/// own rows, in order; save() after `saved_after` of them, and advanced() before the first draft.
template <typename Replay, typename Row, typename Save, typename Advanced>
void walk_state_rows(const BatchIndex& batch, int32_t seq, const Replay& replay, const Row& row,
                     const Save& save, const Advanced& advanced) {
  const StateStep& step = batch.states[seq];
  int32_t done = 0;
  const auto after_row = [&] {
    if (++done == step.saved_after && step.saved >= 0) save();
  };
  for (int32_t i = 0; i < step.replay; ++i) {
    replay(step.replay_first + i);
    after_row();
  }
  const int32_t first = batch.query_start[seq];
  const int32_t end = batch.query_start[seq + 1];
  for (int32_t r = first; r < first + step.advance; ++r) {
    row(r);
    after_row();
  }
  advanced();
  for (int32_t r = first + step.advance; r < end; ++r) row(r);
}

namespace reference {
void wkv_inputs(void*, const WkvInputsArgs&);
void wkv_output(void*, const WkvOutputArgs&);
extern const RecurrentOps kRecurrentOps;
}  // namespace reference
namespace cpu {
void wkv_inputs(void*, const WkvInputsArgs&);
void wkv_output(void*, const WkvOutputArgs&);
extern const RecurrentOps kRecurrentOps;
}  // namespace cpu

}  // namespace hearth::kernels
