#pragma once
// Ops with a state per sequence: what a layer remembers has a constant size, and every token
// changes it.
//
// Rules, in addition to those of kernels/ops.h:
//  * A row is computed from the state after all earlier rows of its sequence, one row after another
//    in ascending order. So its value does not depend on how the rows are split over steps.
//  * StateStep (kernels/ops.h) names the blocks that a sequence's state is read from and written
//    to, and which rows are drafts. A step writes each block for one sequence only; several may
//    read the same one.
//  * Values are computed in f32, gates and norms of keys in double.
//  * Widths of states are multiples of kStateLanes.

#include "kernels/ops.h"

namespace hearth::kernels {

inline constexpr int64_t kStateLanes = 16;
/// Draft rows of one step that can be kept. A tensor of kept rows has twice as many: those of a
/// step are read by the next one, while it keeps its own.
inline constexpr int32_t kKeptRows = 32;
/// Most values of a key in head_scan.
inline constexpr int64_t kMaxKeyDim = 1024;

/// One op's part of the states in a pool of blocks: f32, at base + block * block_bytes + offset.
struct StatePart {
  std::byte* base = nullptr;
  int64_t block_bytes = 0;
  int64_t offset = 0;

  float* of(int32_t block) const {
    return reinterpret_cast<float*>(base + block * block_bytes + offset);
  }
};

/// Causal convolution of each channel over the last `taps` rows:
///   y[t] = bias + sum_j weight[j] * z[t - (taps - 1) + j],  z = x, or x * in_gate
///   out[t] = y[t], or silu(y[t]), or y[t] * out_gate[t]
/// One f32 chain per value, from the bias (or zero) on, j ascending.
/// With num_outs above 1, so many convolutions of the same z: out[t] has their rows side by side.
/// State: the last taps - 1 rows of z, (taps - 1, channels), the oldest first.
/// Source: Gu and Dao 2023 (Mamba), section 3.4; Liquid AI 2025 (LFM2), the gated form.
struct ShortConvArgs {
  const BatchIndex* batch;
  TensorView x;          ///< (num_tokens, channels)
  const Weight* weight;  ///< kVector of num_outs * taps * channels: of each (taps, channels)
  const Weight* bias;    ///< kVector of channels; null: none
  int32_t taps;          ///< 2 .. kMaxTaps
  bool silu = false;
  const TensorView* in_gate = nullptr;   ///< (num_tokens, channels)
  const TensorView* out_gate = nullptr;  ///< (num_tokens, channels); not with silu
  StatePart state;
  TensorView kept;       ///< (2 * kKeptRows, channels): z
  TensorView out;        ///< (num_tokens, num_outs * channels); no memory of x or the gates
  int32_t num_outs = 1;  ///< above 1: no bias, no out_gate
};
inline constexpr int32_t kMaxTaps = 8;

/// A state S of (k_dim, v_dim) for each head, with one decay per head or, with `row_decays`, one
/// for each row of S. Head h of each row:
///   d = softplus(dt[h] + dt_bias[h]);   S = exp(a[h] * d) * S
///   row_decays:  d[i] = softplus(dt[h][i] + dt_bias[h][i]);   S[i] = exp(a[h] * d[i]) * S[i]
///   without dt:  d = 1
///   delta rule:  w = sigmoid(beta[h]) * (v_h - S^T k_g);   else:  w = d * v_h
///   S = S + k_g w^T;   out_h = S^T q_g + skip[h] * v_h
///   erased (dt holds decays then):  u = S^T erased_h;  S[i] = dt[h][i] * S[i] - removed_h[i] * u
///                                   w = v_h, and no delta rule
/// with g the head of q and k that belongs to h. With `unit_keys`, q and k are first divided by
/// sqrt(their sum of squares + eps); q is then multiplied by q_scale.
/// State: (num_heads, k_dim, v_dim).
/// Source: Yang, Kautz and Hatamizadeh 2024 (Gated Delta Networks), equation 10; Dao and Gu 2024
/// (Mamba-2), section 2; Kimi Team 2025 (Kimi Linear), equation 1 (row decays); Qin et al. 2024
/// (Lightning Attention-2), section 3.1 (without dt); Peng et al. 2025 (RWKV-7), equation 17
/// (erased).
struct HeadScanArgs {
  const BatchIndex* batch;
  int32_t num_heads;
  int32_t num_k_heads;  ///< divides num_heads
  int32_t k_dim;        ///< at most kMaxKeyDim
  int32_t v_dim;        ///< a multiple of kStateLanes
  /// Head h uses head h % num_k_heads of q and k; else h / (num_heads / num_k_heads).
  bool tiled = false;
  TensorView q;                      ///< (num_tokens, num_k_heads * k_dim)
  TensorView k;                      ///< likewise
  TensorView v;                      ///< (num_tokens, num_heads * v_dim)
  TensorView dt;                     ///< (num_tokens, dt_width()); no memory: none
  const Weight* dt_bias;             ///< kVector of dt_width(); null: no dt
  const Weight* a;                   ///< kVector of num_heads, negative; not with `erased`
  bool row_decays = false;           ///< only by the delta rule with dt, or with `erased`
  const TensorView* beta = nullptr;  ///< (num_tokens, num_heads); null: no delta rule
  const Weight* skip = nullptr;      ///< kVector of num_heads; null: none
  /// (num_tokens, num_heads * k_dim), both or none; with them row_decays, a head of q and k for
  /// each of v, no dt_bias, beta, skip or unit_keys.
  const TensorView *erased = nullptr, *removed = nullptr;
  bool unit_keys = false;
  float eps = 0;
  float q_scale = 1;
  StatePart state;
  TensorView kept;  ///< (2 * kKeptRows, kept_width()): k, v, dt, beta; or k, v, dt, erased, removed
  TensorView out;   ///< (num_tokens, num_heads * v_dim)

  int64_t dt_width() const { return int64_t{num_heads} * (row_decays ? k_dim : 1); }
  static int64_t kept_width(int32_t num_heads, int32_t num_k_heads, int32_t k_dim, int32_t v_dim,
                            bool row_decays = false) {
    return int64_t{num_k_heads} * k_dim +
           int64_t{num_heads} * (v_dim + (row_decays ? k_dim : 1) + 1);
  }
  static int64_t kept_width_erasing(int32_t num_heads, int32_t k_dim, int32_t v_dim) {
    return int64_t{num_heads} * (4 * k_dim + v_dim);
  }
};

/// A state of d_state values for each channel, with a decay of its own for each. Channel c of each
/// row:
///   d = softplus(dt[c] + dt_bias[c])
///   S[n][c] = exp(d * a[n][c]) * S[n][c] + (d * x[c]) * b[n]
///   out[c] = sum_n C[n] * S[n][c] + skip[c] * x[c], with C the tensor `c`
/// One f32 chain per sum, n ascending. State: (d_state, channels).
/// Source: Gu and Dao 2023 (Mamba), algorithm 2.
struct ChannelScanArgs {
  const BatchIndex* batch;
  TensorView x;           ///< (num_tokens, channels)
  TensorView dt;          ///< (num_tokens, channels)
  TensorView b;           ///< (num_tokens, d_state)
  TensorView c;           ///< (num_tokens, d_state)
  const Weight* dt_bias;  ///< kVector of channels
  const Weight* a;        ///< kVector of d_state * channels: (d_state, channels), negative
  const Weight* skip;     ///< kVector of channels
  StatePart state;
  TensorView kept;  ///< (2 * kKeptRows, 2 * channels + d_state): x, dt, b
  TensorView out;   ///< (num_tokens, channels)
};

struct WkvInputsArgs;
struct WkvOutputArgs;

struct RecurrentOps {
  void (*short_conv)(void* state, const ShortConvArgs&) = nullptr;
  void (*head_scan)(void* state, const HeadScanArgs&) = nullptr;
  void (*channel_scan)(void* state, const ChannelScanArgs&) = nullptr;
  // kernels/ops/wkv_ops.h
  void (*wkv_inputs)(void* state, const WkvInputsArgs&) = nullptr;
  void (*wkv_output)(void* state, const WkvOutputArgs&) = nullptr;
};

}  // namespace hearth::kernels
