#include "kernels/ops/recurrent_ops.h"

#include <algorithm>

#include "kernels/base/check.h"
#include "kernels/ops/checks.h"
#include "kernels/ops/recurrent_kernels.h"

namespace hearth::kernels {
namespace {

void check_state_part(const BatchIndex& batch, const StatePart& state, int64_t values) {
  HEARTH_CHECK(state.base != nullptr && batch.states != nullptr);
  HEARTH_CHECK(state.offset >= 0 && state.offset + 4 * values <= state.block_bytes,
               "state at {}+{} of {}", state.offset, 4 * values, state.block_bytes);
}

}  // namespace

void check_state_rows(const TensorView& view, int64_t rows, int64_t cols, const char* what) {
  HEARTH_CHECK(rows == 0 || view.data != nullptr, "{}", what);
  HEARTH_CHECK(view.dtype == DType::kF32 && view.rows >= rows && view.cols == cols &&
                   view.row_stride >= cols,
               "{}: ({}, {}) stride {}, want ({}, {})", what, view.rows, view.cols, view.row_stride,
               rows, cols);
}

void check_state_vector(const Weight* weight, int64_t cols, const char* what) {
  HEARTH_CHECK(weight != nullptr && weight->vector != nullptr && weight->cols == cols, "{}", what);
}

void check_state_steps(const BatchIndex& batch) {
  for (int32_t seq = 0; seq < num_seqs(batch); ++seq) {
    const StateStep& step = batch.states[seq];
    const int32_t rows = batch.query_start[seq + 1] - batch.query_start[seq];
    const int32_t drafts = rows - step.advance;
    HEARTH_CHECK(step.to >= 0 && step.advance >= 0 && drafts >= 0 && step.replay >= 0);
    HEARTH_CHECK(drafts == 0 || step.keep_first + drafts <= 2 * kKeptRows, "{} drafts at {}",
                 drafts, step.keep_first);
    HEARTH_CHECK(step.replay == 0 || step.replay_first + step.replay <= 2 * kKeptRows);
    HEARTH_CHECK(step.saved < 0 || (step.saved_after >= 1 && step.saved != step.to &&
                                    step.saved_after <= step.replay + step.advance));
  }
}

int32_t num_seqs(const BatchIndex& batch) {
  if (batch.counts == nullptr) return batch.num_seqs;
  HEARTH_CHECK(batch.counts[1] >= 0 && batch.counts[1] <= batch.num_seqs);
  return batch.counts[1];
}

void check_args(const ShortConvArgs& args) {
  const int32_t rows = num_rows(*args.batch, Rows::kTokens);
  const int64_t channels = args.x.cols;
  HEARTH_CHECK(args.taps >= 2 && args.taps <= kMaxTaps && channels % kStateLanes == 0,
               "{} taps, {} channels", args.taps, channels);
  check_state_rows(args.x, rows, channels, "short_conv x");
  check_state_rows(args.out, rows, args.num_outs * channels, "short_conv out");
  check_state_vector(args.weight, args.num_outs * args.taps * channels, "short_conv weight");
  HEARTH_CHECK(
      args.num_outs == 1 || (args.num_outs > 1 && args.bias == nullptr && args.out_gate == nullptr),
      "{} outs", args.num_outs);
  if (args.bias != nullptr) check_state_vector(args.bias, channels, "short_conv bias");
  if (args.in_gate != nullptr) check_state_rows(*args.in_gate, rows, channels, "short_conv gate");
  if (args.out_gate != nullptr) check_state_rows(*args.out_gate, rows, channels, "short_conv gate");
  HEARTH_CHECK(args.out_gate == nullptr || !args.silu);
  check_state_rows(args.kept, 2 * kKeptRows, channels, "short_conv kept");
  check_state_part(*args.batch, args.state, (args.taps - 1) * channels);
}

void check_args(const HeadScanArgs& args) {
  const int32_t rows = num_rows(*args.batch, Rows::kTokens);
  const int64_t heads = args.num_heads, k_heads = args.num_k_heads;
  HEARTH_CHECK(heads > 0 && k_heads > 0 && heads % k_heads == 0, "{} heads, {} of keys", heads,
               k_heads);
  HEARTH_CHECK(
      args.k_dim > 0 && args.k_dim <= kMaxKeyDim && args.v_dim > 0 && args.v_dim % kStateLanes == 0,
      "state of ({}, {})", args.k_dim, args.v_dim);
  check_state_rows(args.q, rows, k_heads * args.k_dim, "head_scan q");
  check_state_rows(args.k, rows, k_heads * args.k_dim, "head_scan k");
  check_state_rows(args.v, rows, heads * args.v_dim, "head_scan v");
  check_state_rows(args.out, rows, heads * args.v_dim, "head_scan out");
  if (args.beta != nullptr) check_state_rows(*args.beta, rows, heads, "head_scan beta");
  if (args.dt_bias != nullptr || args.erased != nullptr) {
    check_state_rows(args.dt, rows, args.dt_width(), "head_scan dt");
  }
  if (args.dt_bias != nullptr) {
    check_state_vector(args.dt_bias, args.dt_width(), "head_scan dt_bias");
  }
  int64_t width = HeadScanArgs::kept_width(args.num_heads, args.num_k_heads, args.k_dim, args.v_dim,
                                           args.row_decays);
  if (args.erased != nullptr) {
    check_state_rows(*args.erased, rows, args.dt_width(), "head_scan erased");
    check_state_rows(*args.removed, rows, args.dt_width(), "head_scan removed");
    HEARTH_CHECK(args.row_decays && heads == k_heads && args.dt_bias == nullptr &&
                 args.beta == nullptr && args.skip == nullptr && !args.unit_keys);
    width = HeadScanArgs::kept_width_erasing(args.num_heads, args.k_dim, args.v_dim);
  } else {
    HEARTH_CHECK(!args.row_decays || (args.beta != nullptr && args.dt_bias != nullptr));
    check_state_vector(args.a, heads, "head_scan a");
  }
  if (args.skip != nullptr) check_state_vector(args.skip, heads, "head_scan skip");
  check_state_rows(args.kept, 2 * kKeptRows, width, "head_scan kept");
  check_state_part(*args.batch, args.state, heads * args.k_dim * args.v_dim);
}

void check_args(const ChannelScanArgs& args) {
  const int32_t rows = num_rows(*args.batch, Rows::kTokens);
  const int64_t channels = args.x.cols, d_state = args.b.cols;
  HEARTH_CHECK(channels % kStateLanes == 0 && d_state > 0, "{} channels, state {}", channels,
               d_state);
  check_state_rows(args.x, rows, channels, "channel_scan x");
  check_state_rows(args.dt, rows, channels, "channel_scan dt");
  check_state_rows(args.b, rows, d_state, "channel_scan b");
  check_state_rows(args.c, rows, d_state, "channel_scan c");
  check_state_rows(args.out, rows, channels, "channel_scan out");
  check_state_vector(args.dt_bias, channels, "channel_scan dt_bias");
  check_state_vector(args.a, d_state * channels, "channel_scan a");
  check_state_vector(args.skip, channels, "channel_scan skip");
  check_state_rows(args.kept, 2 * kKeptRows, 2 * channels + d_state, "channel_scan kept");
  check_state_part(*args.batch, args.state, d_state * channels);
}

double key_scale(const HeadScanArgs& args, const float* key, double scale) {
  if (!args.unit_keys) return scale;
  double squares = 0;
  for (int32_t i = 0; i < args.k_dim; ++i) squares += double{key[i]} * double{key[i]};
  return scale / std::sqrt(squares + args.eps);
}

HeadRow head_row(const HeadScanArgs& args, int64_t row) {
  const auto of = [row](const TensorView* view) {
    return view == nullptr ? nullptr : view->row<float>(row);
  };
  const bool has_dt = args.dt_bias != nullptr || args.erased != nullptr;
  return {args.k.row<float>(row), args.v.row<float>(row), of(has_dt ? &args.dt : nullptr),
          of(args.beta),          of(args.erased),        of(args.removed)};
}

HeadRow kept_head_row(const HeadScanArgs& args, int64_t kept) {
  const float* k = args.kept.row<float>(kept);
  const float* v = k + int64_t{args.num_k_heads} * args.k_dim;
  const float* dt = v + int64_t{args.num_heads} * args.v_dim;
  const float* rest = dt + args.dt_width();
  if (args.erased != nullptr) return {k, v, dt, nullptr, rest, rest + args.dt_width()};
  return {k, v, dt, args.beta == nullptr ? nullptr : rest, nullptr, nullptr};
}

void keep_head_row(const HeadScanArgs& args, int64_t row, int64_t kept) {
  const HeadRow from = head_row(args, row);
  float* at = args.kept.row<float>(kept);
  at = std::copy_n(from.k, args.k.cols, at);
  at = std::copy_n(from.v, args.v.cols, at);
  if (from.dt != nullptr) std::copy_n(from.dt, args.dt_width(), at);
  at += args.dt_width();
  if (from.beta != nullptr) std::copy_n(from.beta, args.num_heads, at);
  if (from.erased == nullptr) return;
  at = std::copy_n(from.erased, args.dt_width(), at);
  std::copy_n(from.removed, args.dt_width(), at);
}

ChannelRow channel_row(const ChannelScanArgs& args, int64_t row) {
  return {args.x.row<float>(row), args.dt.row<float>(row), args.b.row<float>(row)};
}

ChannelRow kept_channel_row(const ChannelScanArgs& args, int64_t kept) {
  const float* x = args.kept.row<float>(kept);
  return {x, x + args.x.cols, x + 2 * args.x.cols};
}

void keep_channel_row(const ChannelScanArgs& args, int64_t row, int64_t kept) {
  const ChannelRow from = channel_row(args, row);
  float* at = args.kept.row<float>(kept);
  at = std::copy_n(from.x, args.x.cols, at);
  at = std::copy_n(from.dt, args.x.cols, at);
  std::copy_n(from.b, args.b.cols, at);
}

}  // namespace hearth::kernels
