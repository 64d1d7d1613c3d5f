// Attention of a layer over keys and values of its own or of another layer: q, k and v from one
// product, norms of heads, rotation, and what is stored.

#include <algorithm>

#include "kernels/ops/encoder_ops.h"
#include "models/decoder/decoder.h"

namespace hearth::models {

using kernels::BatchIndex;
using kernels::TensorView;

void Decoder::attention(const LayerStep& s, const TensorView& in) {
  const DecoderConfig& c = config_;
  const kernels::KvShape& kv = s.spec.kv;
  const int64_t q_width = s.spec.q_width();
  const int64_t q_rows = c.gate_in_q ? 2 * q_width : q_width;
  const TensorView q = c.gate_in_q ? act_.q.columns(0, q_width) : act_.qkv.columns(0, q_width);
  product(s, in, s.weights.qkv, s.weights.qkv_bias, act_.qkv.columns(0, s.weights.qkv->rows));
  if (s.weights.kv) {
    product(s, in, s.weights.kv, s.weights.kv_bias, act_.qkv.columns(q_rows, s.weights.kv->rows));
  }
  if (c.gate_in_q) split_gate(s, act_.qkv.columns(0, q_rows));
  const TensorView k = act_.qkv.columns(q_rows, kv.k_width());
  // Where q and k lie side by side, one op rotates both.
  const bool together = s.spec.stores_kv() && !c.gate_in_q;
  const TensorView rotated = together ? act_.qkv.columns(0, q_width + kv.k_width()) : k;
  if (together) norm_heads(s, q, s.weights.q_norm, s.weights.q_norms, Moment::kBeforeRope);
  if (s.spec.stores_kv()) {
    store_kv(s, k, act_.qkv.columns(q_rows + kv.k_width(), kv.v_width()), rotated);
  }
  if (!together) {
    norm_heads(s, q, s.weights.q_norm, s.weights.q_norms, Moment::kBeforeRope);
    rotate(s, q);
  }
  norm_heads(s, q, s.weights.q_norm, {}, Moment::kAfterRope);
  scale_by_position(s, q);
  const bool changed = c.gate_in_q || s.weights.attn_gate != nullptr || c.share.is_part();
  const auto attend = c.canvas.mask_token >= 0 ? ops_.encoder->attention_to_all : ops_.attention;
  attend(state(), {.batch = &s.batch,
                   .group = s.spec.group,
                   .q = q,
                   .kv = s.kv,
                   .num_heads = s.spec.num_heads,
                   .scale = c.attention_scale,
                   .window = s.spec.window,
                   .soft_cap = c.attention_soft_cap,
                   .sinks = s.weights.sinks.get(),
                   .out = s.attn,
                   .reader = changed ? nullptr : s.weights.attn_out.get()});
  if (c.gate_in_q) {
    ops_.encoder->sigmoid_gate(
        state(), {.batch = &s.batch, .x = s.attn, .gate = act_.gate.columns(0, q_width)});
  }
  if (!s.weights.attn_gate) return;
  const TensorView gate = act_.qkv.columns(0, s.spec.out_width());  // in place of q, k and v
  product(s, in, s.weights.attn_gate, {}, gate);
  ops_.encoder->sigmoid_gate(state(), {.batch = &s.batch, .x = s.attn, .gate = gate});
}

void Decoder::split_gate(const LayerStep& s, const TensorView& q_and_gate) {
  const int32_t dim = s.spec.kv.k_dim;
  const auto copy = [&](int32_t first, const TensorView& out) {
    ops_.copy_heads(state(), {.batch = &s.batch,
                              .x = q_and_gate,
                              .x_dim = 2 * dim,
                              .x_first = first,
                              .out = out,
                              .out_dim = dim,
                              .out_first = 0,
                              .num_heads = s.spec.num_heads,
                              .count = dim});
  };
  copy(0, act_.q.columns(0, s.spec.q_width()));
  copy(dim, act_.gate.columns(0, s.spec.q_width()));
}

void Decoder::scale_by_position(const LayerStep& s, const TensorView& q) {
  if (config_.position_scale == 0) return;
  ops_.encoder->scale_by_position(state(), {.batch = &s.batch,
                                            .x = q,
                                            .scale = config_.position_scale,
                                            .length = config_.position_length});
}

void Decoder::store_kv(const LayerStep& s, const TensorView& k, const TensorView& v,
                       const TensorView& rotated) {
  if (s.weights.v_is_k) copy_columns(s.batch, k, 0, v);
  if (s.weights.v_norm) norm(s, v, s.weights.v_norm, v);
  norm_heads(s, k, s.weights.k_norm, s.weights.k_norms, Moment::kBeforeRope);
  const bool normed_later = s.weights.k_norm && config_.qk_norm == QkNorm::kHeadsAfterRope;
  const auto at_once = ops_.encoder == nullptr ? nullptr : ops_.encoder->rotate_and_store;
  if (at_once != nullptr && s.spec.rope != kNoRope && !normed_later && s.also_stored.empty()) {
    return at_once(state(), rope_args(s, rotated), kv_args(s, s.batch, k, v));
  }
  rotate(s, rotated);
  norm_heads(s, k, s.weights.k_norm, {}, Moment::kAfterRope);
  write_kv(s, k, v);
}

void Decoder::write_kv(const LayerStep& s, const TensorView& k, const TensorView& v) {
  const auto write = [&](const BatchIndex& batch) {
    ops_.kv_store(state(), kv_args(s, batch, k, v));
  };
  write(s.batch);
  std::ranges::for_each(s.also_stored, write);
}

void Decoder::norm_heads(const LayerStep& s, const TensorView& heads, const WeightHandle& weight,
                         std::span<const WeightHandle> each_head, Moment moment) {
  const bool late = config_.qk_norm == QkNorm::kHeadsAfterRope;
  if (weight && late == (moment == Moment::kAfterRope)) norm(s, heads, weight, heads);
  for (int64_t h = 0; h < std::ssize(each_head); ++h) {
    const TensorView head = heads.columns(h * s.spec.kv.k_dim, s.spec.kv.k_dim);
    norm(s, head, each_head[h], head);
  }
}

kernels::RopeArgs Decoder::rope_args(const LayerStep& s, const TensorView& heads) const {
  return {.batch = &s.batch,
          .x = heads,
          .num_heads = static_cast<int32_t>(heads.cols / s.spec.kv.k_dim),
          .head_dim = s.spec.kv.k_dim,
          .cos_sin = act_.cos_sin[s.spec.rope],
          .pairs = config_.pairs};
}

kernels::KvStoreArgs Decoder::kv_args(const LayerStep& s, const BatchIndex& batch,
                                      const TensorView& k, const TensorView& v) {
  return {.batch = &batch, .group = s.spec.group, .k = k, .v = v, .kv = s.kv};
}

void Decoder::rotate(const LayerStep& s, const TensorView& heads) {
  if (s.spec.rope != kNoRope) ops_.rope(state(), rope_args(s, heads));
}

}  // namespace hearth::models
