// AltUp: several residual streams, of which each layer computes only the active one. It predicts
// all of them from all, computes the active one, and corrects the others by how far that differs
// from its prediction. LAuReL: a product of low rank next to attention.
//
//   stream_0 = x;  stream_i = x W_in_i, scaled to the magnitude of x
//   for each layer:
//     c = tanh(norm(stream_a) W_router / width) W_predict;  p_i = stream_i + sum of c_ij * stream_j
//     h = norm(p_a)
//     x = (p_a + norm(attention(h) W_out) + h + norm(h W_l W_r)) / sqrt(2)
//     x += norm(feed-forward(norm(x)))
//     c = tanh(norm(x) W_router / width) W_correct + 1;  p_i += c_i * (x - p_a)
//     p_i += per_layer_branch(p_a * scale), but for p_0;  stream_i = p_i
//   x = mean of stream_0 and stream_i W_out_i, scaled to the magnitude of stream_0
//
// Source: Baykal et al. 2023 (AltUp) section 3; Menghani et al. 2024 (LAuReL) section 2; Google
// 2025 (Gemma 3n), the published code.

#include <numbers>

#include "models/decoder/decoder.h"

namespace hearth::models {

using kernels::BatchIndex;
using kernels::TensorView;

namespace {

/// Only keeps a row of zeros from being divided by zero.
constexpr float kLeast = 1e-12f;

/// Each stream of each token as a row of its own.
TensorView rows_of_streams(const TensorView& streams, int64_t width) {
  TensorView out = streams;
  out.rows = streams.rows * (streams.cols / width);
  out.cols = out.row_stride = width;
  return out;
}

}  // namespace

TensorView AltUpDecoder::stream(const TensorView& streams, int64_t i) const {
  return streams.columns(i * config().width, config().width);
}

void AltUpDecoder::begin(const BatchIndex& batch) {
  const TensorView& streams = act().altup.streams[0];
  const int64_t width = config().width;
  const TensorView others = streams.columns(width, streams.cols - width);
  copy_columns(batch, act().x, 0, stream(streams, 0));
  multiply({.batch = &batch, .x = act().x, .w = weights().altup.in.get(), .out = others});
  ops().rms_norm(state(), {.batch = &batch,
                           .x = others,
                           .weight = weights().altup.ones.get(),
                           .eps = kLeast,
                           .out = others});
  ops().times_rms(state(), {.batch = &batch, .x = others, .like = act().x, .eps = kLeast});
}

void AltUpDecoder::finish(const BatchIndex& batch) {
  const TensorView& streams = act().altup.streams[config().num_layers % 2];
  const TensorView first = stream(streams, 0);
  const TensorView& branch = act().branch;
  copy_columns(batch, first, 0, act().x);
  for (int32_t i = 1; i < config().altup.streams; ++i) {
    ops().matmul(state(), {.batch = &batch,
                           .x = stream(streams, i),
                           .w = weights().altup.out[i - 1].get(),
                           .out = branch});
    ops().rms_norm(state(), {.batch = &batch,
                             .x = branch,
                             .weight = weights().altup.ones.get(),
                             .eps = kLeast,
                             .out = branch});
    ops().times_rms(state(), {.batch = &batch, .x = branch, .like = first, .eps = kLeast});
    ops().add_scaled(state(), {.batch = &batch, .x = branch, .out = act().x});
  }
  scale_stream(batch, inverse(config().altup.streams));
}

void AltUpDecoder::layer(const LayerStep& s) {
  const TensorView& streams = act().altup.streams[s.index % 2];
  const TensorView& predicted = act().altup.streams[(s.index + 1) % 2];
  predict(s, streams, predicted);
  copy_columns(s.batch, stream(predicted, config().altup.active), 0, act().x);

  norm(s, act().x, s.weights.attn_norm, act().normed);
  add_laurel(s);
  attention(s, act().normed);
  add_normed_product(s, s.attn, s.weights.attn_out, s.weights.attn_bias, s.weights.attn_post_norm);
  scale_stream(s.batch, 1 / std::numbers::sqrt2_v<float>);
  norm(s, act().x, s.weights.ffn_norm, act().normed, s.weights.gate_up.get());
  gated(s, act().normed);
  add_normed_product(s, s.gated, s.weights.down, s.weights.down_bias, s.weights.ffn_post_norm);

  correct(s, predicted);
}

/// act().altup.router = tanh(norm(x) W_router / width)
void AltUpDecoder::route_streams(const LayerStep& s, const TensorView& x) {
  const TensorView& router = act().altup.router;
  norm(s, x, s.weights.altup.router_norm, act().normed);
  product(s, act().normed, s.weights.altup.router, WeightHandle(), router);
  ops().soft_cap(state(), {.batch = &s.batch,
                           .rows = kernels::Rows::kTokens,
                           .scale = inverse(config().width),
                           .soft_cap = 1,
                           .x = router});
}

void AltUpDecoder::predict(const LayerStep& s, const TensorView& streams,
                           const TensorView& predicted) {
  const int32_t n = config().altup.streams;
  const TensorView& coefs = act().altup.coefs;
  route_streams(s, stream(streams, config().altup.active));
  product(s, act().altup.router, s.weights.altup.predict, WeightHandle(), coefs);
  copy_columns(s.batch, streams, 0, predicted);
  for (int64_t i = 0; i < n; ++i) {
    ops().moe_combine(state(), {.batch = &s.batch,
                                .x = rows_of_streams(streams, config().width),
                                .weights = coefs.columns(i * n, n),
                                .out = stream(predicted, i)});
  }
}

/// x += h + norm(h W_l W_r), h being act().normed
void AltUpDecoder::add_laurel(const LayerStep& s) {
  const WeightHandle none;
  product(s, act().normed, s.weights.altup.laurel_in, none, act().altup.low);
  product(s, act().altup.low, s.weights.altup.laurel_out, none, act().branch);
  norm(s, act().branch, s.weights.altup.laurel_norm, act().branch);
  for (const TensorView& added : {act().normed, act().branch}) {
    ops().add_scaled(state(), {.batch = &s.batch, .x = added, .out = act().x});
  }
}

void AltUpDecoder::correct(const LayerStep& s, const TensorView& predicted) {
  const AltUp& c = config().altup;
  const TensorView coefs = act().altup.coefs.columns(0, c.streams);
  const TensorView active = stream(predicted, c.active);
  route_streams(s, act().x);
  product(s, act().altup.router, s.weights.altup.correct, weights().altup.bias, coefs);
  ops().add_scaled(state(), {.batch = &s.batch, .x = active, .scale = -1, .out = act().x});
  for (int64_t i = 0; i < c.streams; ++i) {
    ops().moe_combine(state(), {.batch = &s.batch,
                                .x = act().x,
                                .weights = coefs.columns(i, 1),
                                .out = stream(predicted, i)});
  }
  // The active stream times the vector `scale`: a norm with that weight, and the norm undone.
  norm(s, active, s.weights.altup.scale, act().normed);
  ops().times_rms(state(),
                  {.batch = &s.batch, .x = act().normed, .like = active, .eps = config().eps});
  per_layer_branch(s, act().normed);
  for (int64_t i = 1; i < c.streams; ++i) {
    ops().add_scaled(state(), {.batch = &s.batch, .x = act().branch, .out = stream(predicted, i)});
  }
}

}  // namespace hearth::models
