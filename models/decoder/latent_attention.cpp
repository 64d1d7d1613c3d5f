// Multi-head latent attention. All heads share one stored row per token: a latent c and a rotated
// part r.
//
//   [c, r] = h W_kv_a;  c = norm(c), rotate r
//   [q_plain, q_rot] = h W_q, or norm(h W_q_a) W_q_b;  rotate q_rot
//   expanded:  k_head = [c W_k_b, r], v_head = c W_v_b;  out_head = attention(q, k_head, v_head)
//   absorbed:  q_head = [q_plain W_k_b^T, q_rot];  out_head = attention(q_head, [c, r], c) W_v_b
//
// Both are the same sums in another order. The second is computed here: it reads one row per
// position for all heads.
//
// Source: DeepSeek-AI 2024 (DeepSeek-V2) section 2.1 and appendix C.

#include "models/decoder/decoder.h"

namespace hearth::models {

using kernels::TensorView;

namespace {

/// Columns [first, first + cols) of each of the heads of `dim` values, as a row of its own.
TensorView rows_of_heads(const TensorView& x, int64_t heads, int64_t dim, int64_t cols) {
  TensorView out = x;
  out.rows = x.rows * heads;
  out.cols = cols;
  out.row_stride = dim;
  return out;
}

}  // namespace

void Decoder::rotate_part(const LayerStep& s, const TensorView& x, int32_t num_heads, int32_t dim,
                          int32_t first) {
  if (s.spec.rope == kNoRope) return;
  ops_.rope(state(), {.batch = &s.batch,
                      .x = x,
                      .num_heads = num_heads,
                      .head_dim = dim,
                      .cos_sin = act_.cos_sin[s.spec.rope],
                      .pairs = config_.pairs,
                      .first = first});
}

void Decoder::store_latent(const LayerStep& s, const TensorView& in) {
  const LatentAttention& c = config_.latent;
  const TensorView& k = act_.latent.k;
  product(s, in, s.weights.kv_a, {}, k);
  const TensorView latent = k.columns(0, c.kv_rank);
  norm(s, latent, s.weights.kv_a_norm, latent);
  rotate_part(s, k, 1, c.kv_rank + c.rotated, c.kv_rank);
  write_kv(s, k, {});
}

void Decoder::latent_attention(const LayerStep& s, const TensorView& in) {
  const LatentAttention& c = config_.latent;
  const Activations::Latent& a = act_.latent;
  const int32_t heads = s.spec.num_heads;
  const int32_t row = c.kv_rank + c.rotated;
  const auto per_head = [&](const TensorView& x, const WeightHandle& w, const TensorView& out) {
    ops_.moe_matmul(state(), {.batch = &s.batch,
                              .x = x,
                              .x_per_choice = true,
                              .w = w.get(),
                              .ids = a.heads,
                              .out = out});
  };

  const WeightHandle none;
  if (s.weights.q_a) {
    product(s, in, s.weights.q_a, none, a.q_a);
    norm(s, a.q_a, s.weights.q_a_norm, a.q_a, s.weights.q.get());
  }
  product(s, s.weights.q_a ? a.q_a : in, s.weights.q, none, a.q);
  rotate_part(s, a.q, heads, c.head_dim(), c.plain);
  scale_by_position(s, a.q);
  store_latent(s, in);

  per_head(rows_of_heads(a.q, heads, c.head_dim(), c.plain), s.weights.k_b,
           rows_of_heads(a.full, heads, row, c.kv_rank));
  ops_.copy_heads(state(), {.batch = &s.batch,
                            .x = a.q,
                            .x_dim = c.head_dim(),
                            .x_first = c.plain,
                            .out = a.full,
                            .out_dim = row,
                            .out_first = c.kv_rank,
                            .num_heads = heads,
                            .count = c.rotated});
  ops_.attention(state(), {.batch = &s.batch,
                           .group = s.spec.group,
                           .q = a.full,
                           .kv = s.kv,
                           .num_heads = heads,
                           .scale = config_.attention_scale,
                           .window = s.spec.window,
                           .out = s.attn});
  per_head(rows_of_heads(s.attn, heads, c.kv_rank, c.kv_rank), s.weights.v_b,
           rows_of_heads(a.out, heads, c.v_dim, c.v_dim));
}

}  // namespace hearth::models
