// Layers with a state per sequence in place of keys and values. `conv` is a causal convolution of
// each channel, followed by silu (ShortConvArgs); the scans are HeadScanArgs and ChannelScanArgs.
//
// Gated delta net:
//   [q, k, v] = conv(h W_qkv);  beta = h W_beta;  dt = h W_alpha;  z = h W_z
//   y = scan by the delta rule of (q, k, v, dt, beta), q and k of length 1
//   out = (norm_head(y) * silu(z)) W_out
//
// Kimi delta attention:
//   [q, k, v] = conv(h [W_q, W_k, W_v]);  beta = h W_beta;  dt = h W_fa W_fb;  z = h W_ga W_gb
//   y = scan by the delta rule of (q, k, v, dt, beta), each row of a state with a decay of its own
//   out = (norm_head(y) * sigmoid(z)) W_out
//
// Mamba-2:
//   [z, xBC, dt] = h W_in;  [x, B, C] = conv(xBC)
//   y = scan of (q = C, k = B, v = x, dt), plus D x
//   out = norm_group(y * silu(z)) W_out, or without the norm
//
// Mamba:
//   [x, z] = h W_in;  x = conv(x);  [dt, B, C] = x W_x, each normed in some families
//   y = scan of each channel of (x, dt W_dt, B, C), plus D x
//   out = (y * silu(z)) W_out
//
// PLaMo 2's, between the two:
//   [z, x] of each head = h W_in;  x = conv(x);  [B, C, dt] = x W_x, each normed
//   y = scan of (q = C, k = B, v = x, dt W_dt), all heads sharing B and C, plus D x
//   out = (y * silu(z)) W_out
//
// Lightning attention:
//   [q, k, v] of each head = silu(h W_qkv);  z = h W_gate
//   y = scan of (q, k, v), each head's state with a decay of its own
//   out = (norm(y) * sigmoid(z)) W_out
//
// RWKV-7's time mix, each row of h mixed with the one before in proportions of its own (conv):
//   r = h_r W_r;  k = h_k W_k;  v = h_v W_v;  decay = tanh(h_w W_w1) W_w2;  rate = h_a W_a1 W_a2
//   v is moved towards the first layer's, by the sigmoid of h_v W_v1 W_v2 (WkvInputsArgs)
//   y = scan of (r, k, v, decay), which erases a key (HeadScanArgs::erased)
//   out = ((norm_head(y) + bonus) * sigmoid(h_g W_g1) W_g2) W_out (WkvOutputArgs)
//
// Short convolution, without silu:
//   [b, c, x] = h W_in;  out = (c * conv(b * x)) W_out
//
// Source: Yang, Kautz and Hatamizadeh 2024 (Gated Delta Networks); Qwen Team 2025 (Qwen3-Next), the
// published code; Kimi Team 2025 (Kimi Linear); Dao and Gu 2024 (Mamba-2); Gu and Dao 2023 (Mamba);
// Liquid AI 2025 (LFM2); Qin et al. 2024 (Lightning Attention-2); MiniMax 2025 (MiniMax-01),
// section 2.2; Peng et al. 2025 (RWKV-7), section 4.

#include "kernels/base/check.h"
#include "kernels/base/numbers.h"
#include "kernels/ops/encoder_ops.h"
#include "kernels/ops/wkv_ops.h"
#include "models/decoder/decoder.h"

namespace hearth::models {

using kernels::Rows;
using kernels::TensorView;
using Kind = RecurrentConfig::Kind;

namespace {

/// Of the lengths of q and k, as in the published code.
constexpr float kUnitEps = 1e-6f;
/// Of RWKV-7's norm of each head, as in the published code.
constexpr float kHeadNormEps = 64e-5f;

TensorView kept_rows(const TensorView& all, int32_t layer) {
  TensorView view = all;
  view.rows = 2 * kernels::kKeptRows;
  view.data = all.data == nullptr ? nullptr : all.row<float>(int64_t{layer} * view.rows);
  return view;
}

}  // namespace

void Decoder::convolve(const LayerStep& s, const ConvParts& parts) {
  const RecurrentConfig& c = config_.recurrent;
  ops_.recurrent->short_conv(state(),
                             {.batch = &s.batch,
                              .x = parts.x,
                              .weight = s.weights.recurrent.conv.get(),
                              .bias = s.weights.recurrent.conv_bias.get(),
                              .taps = c.taps,
                              .silu = c.kind != Kind::kShortConv && c.kind != Kind::kWkv,
                              .in_gate = parts.in_gate,
                              .out_gate = parts.out_gate,
                              .state = s.state,
                              .kept = kept_rows(act_.recurrent.conv_kept, s.spec.state_index),
                              .out = parts.out,
                              .num_outs = c.kind == Kind::kWkv ? c.num_mixed() : 1});
}

TensorView Decoder::feed_forward_rows(const LayerStep& s) {
  const RecurrentConfig& c = config_.recurrent;
  if (!s.weights.recurrent.shift) return act_.normed;
  kernels::StatePart part = s.state;
  part.offset += 4 * (c.conv_values() + c.scan_values());
  ops_.recurrent->short_conv(state(),
                             {.batch = &s.batch,
                              .x = act_.normed,
                              .weight = s.weights.recurrent.shift.get(),
                              .bias = nullptr,
                              .taps = c.taps,
                              .state = part,
                              .kept = kept_rows(act_.recurrent.shift_kept, s.spec.state_index),
                              .out = act_.recurrent.conv});
  return act_.recurrent.conv;
}

void Decoder::gate_rows(const LayerStep& s, const TensorView& gate_and_y) {
  ops_.gated_activation(state(), {.batch = &s.batch,
                                  .gate_up = gate_and_y,
                                  .out = act_.recurrent.out,
                                  .reader = s.weights.recurrent.out.get()});
}

void Decoder::gated_delta(const LayerStep& s, const TensorView& in) {
  const RecurrentConfig& c = config_.recurrent;
  const DecoderWeights::Layer::Recurrent& w = s.weights.recurrent;
  const Activations::Recurrent& a = act_.recurrent;
  const int64_t channels = c.conv_channels(), heads = c.num_heads;
  product(s, in, w.in, {}, a.row.columns(0, c.in_width()));
  const TensorView gates = a.row.columns(channels, 2 * heads);
  TensorView beta = gates.columns(0, heads);
  TensorView dt = gates.columns(heads, heads);
  if (c.joined_gates) {
    beta = a.gates.columns(0, heads);
    dt = a.gates.columns(heads, heads);
    const int32_t each = c.num_heads / c.num_k_heads;
    const auto split = [&](int32_t first, const TensorView& out) {
      ops_.copy_heads(state(), {.batch = &s.batch,
                                .x = gates,
                                .x_dim = 2 * each,
                                .x_first = first,
                                .out = out,
                                .out_dim = each,
                                .out_first = 0,
                                .num_heads = c.num_k_heads,
                                .count = each});
    };
    split(0, beta);
    split(each, dt);
  }
  convolve(s, {a.row.columns(0, channels), a.conv, nullptr, nullptr});
  const TensorView gate_and_y = a.row.columns(channels + 2 * heads, 2 * int64_t{c.inner});
  const TensorView y = gate_and_y.columns(c.inner, c.inner);
  scan_heads(s, {.q = a.conv.columns(0, c.k_width()),
                 .k = a.conv.columns(c.k_width(), c.k_width()),
                 .v = a.conv.columns(2 * c.k_width(), c.inner),
                 .dt = dt,
                 .beta = &beta,
                 .out = y});
  norm(s, y, w.norms.front(), y);
  gate_rows(s, gate_and_y);
}

void Decoder::kimi_delta(const LayerStep& s, const TensorView& in) {
  const RecurrentConfig& c = config_.recurrent;
  const DecoderWeights::Layer::Recurrent& w = s.weights.recurrent;
  const Activations::Recurrent& a = act_.recurrent;
  const int64_t channels = c.conv_channels(), low = c.k_dim;
  product(s, in, w.in, {}, a.row.columns(0, c.in_width()));
  product(s, a.row.columns(channels, low), w.dt, {}, a.dt);
  convolve(s, {a.row.columns(0, channels), a.conv, nullptr, nullptr});
  const TensorView beta = a.row.columns(channels + 2 * low, c.num_heads);
  scan_heads(s, {.q = a.conv.columns(0, c.inner),
                 .k = a.conv.columns(c.inner, c.inner),
                 .v = a.conv.columns(2 * int64_t{c.inner}, c.inner),
                 .dt = a.dt,
                 .beta = &beta,
                 .out = a.out});
  norm(s, a.out, w.norms.front(), a.out);
  const TensorView gate = a.conv.columns(0, c.inner);  // in place of q
  product(s, a.row.columns(channels + low, low), w.gate, {}, gate);
  ops_.encoder->sigmoid_gate(state(), {.batch = &s.batch, .x = a.out, .gate = gate});
}

void Decoder::scan_heads(const LayerStep& s, const ScanParts& parts) {
  const RecurrentConfig& c = config_.recurrent;
  const bool delta = parts.beta != nullptr;
  kernels::StatePart part = s.state;
  part.offset += 4 * c.conv_values();
  ops_.recurrent->head_scan(state(),
                            {.batch = &s.batch,
                             .num_heads = c.num_heads,
                             .num_k_heads = c.num_k_heads,
                             .k_dim = c.k_dim,
                             .v_dim = c.v_dim,
                             .tiled = c.tiled,
                             .q = parts.q,
                             .k = parts.k,
                             .v = parts.v,
                             .dt = parts.dt,
                             .dt_bias = s.weights.recurrent.dt_bias.get(),
                             .a = s.weights.recurrent.a.get(),
                             .row_decays = c.kind == Kind::kKimiDelta,
                             .beta = parts.beta,
                             .skip = s.weights.recurrent.skip.get(),
                             .unit_keys = delta,
                             .eps = delta ? kUnitEps : 0,
                             .q_scale = delta ? inverse_root(c.k_dim) : 1,
                             .state = part,
                             .kept = kept_rows(act_.recurrent.scan_kept, s.spec.state_index),
                             .out = parts.out});
}

void Decoder::mamba2(const LayerStep& s, const TensorView& in) {
  const RecurrentConfig& c = config_.recurrent;
  const Activations::Recurrent& a = act_.recurrent;
  const int64_t inner = c.inner;
  product(s, in, s.weights.recurrent.in, {}, a.row.columns(0, c.in_width()));
  convolve(s, {a.row.columns(inner, c.conv_channels()), a.conv, nullptr, nullptr});
  // What the convolution has read makes room for y, next to the gate.
  scan_heads(s, {.q = a.conv.columns(inner + c.k_width(), c.k_width()),
                 .k = a.conv.columns(inner, c.k_width()),
                 .v = a.conv.columns(0, inner),
                 .dt = a.row.columns(inner + c.conv_channels(), c.num_heads),
                 .beta = nullptr,
                 .out = a.row.columns(inner, inner)});
  gate_rows(s, a.row.columns(0, 2 * inner));
  const auto groups = std::ssize(s.weights.recurrent.norms);
  for (int64_t i = 0; i < groups; ++i) {
    const TensorView group = a.out.columns(i * inner / groups, inner / groups);
    norm(s, group, s.weights.recurrent.norms[i], group);
  }
}

void Decoder::mamba(const LayerStep& s, const TensorView& in) {
  const RecurrentConfig& c = config_.recurrent;
  const DecoderWeights::Layer::Recurrent& w = s.weights.recurrent;
  const Activations::Recurrent& a = act_.recurrent;
  const int64_t inner = c.inner;
  product(s, in, w.in, {}, a.row.columns(0, c.in_width()));
  convolve(s, {a.row.columns(0, inner), a.conv, nullptr, nullptr});
  product(s, a.conv, w.x, {}, a.low);
  const TensorView low_dt = a.low.columns(0, c.dt_rank);
  const TensorView b = a.low.columns(c.dt_rank, c.d_state);
  const TensorView c_row = a.low.columns(c.dt_rank + c.d_state, c.d_state);
  if (c.inner_norms) {
    norm(s, low_dt, w.dt_norm, low_dt);
    norm(s, b, w.b_norm, b);
    norm(s, c_row, w.c_norm, c_row);
  }
  product(s, low_dt, w.dt, {}, a.dt);
  kernels::StatePart part = s.state;
  part.offset += 4 * c.conv_values();
  const TensorView gate_and_y = a.row.columns(inner, 2 * inner);
  ops_.recurrent->channel_scan(state(), {.batch = &s.batch,
                                         .x = a.conv,
                                         .dt = a.dt,
                                         .b = b,
                                         .c = c_row,
                                         .dt_bias = w.dt_bias.get(),
                                         .a = w.a.get(),
                                         .skip = w.skip.get(),
                                         .state = part,
                                         .kept = kept_rows(a.scan_kept, s.spec.state_index),
                                         .out = gate_and_y.columns(inner, inner)});
  gate_rows(s, gate_and_y);
}

void Decoder::plamo(const LayerStep& s, const TensorView& in) {
  const RecurrentConfig& c = config_.recurrent;
  const DecoderWeights::Layer::Recurrent& w = s.weights.recurrent;
  const Activations::Recurrent& a = act_.recurrent;
  const int64_t inner = c.inner;
  const TensorView heads = a.row.columns(0, c.in_width());
  const TensorView gate_and_y = a.row.columns(2 * inner, 2 * inner);
  const TensorView x = a.row.columns(4 * inner, inner);
  product(s, in, w.in, {}, heads);
  const auto split = [&](int32_t first, const TensorView& out) {
    ops_.copy_heads(state(), {.batch = &s.batch,
                              .x = heads,
                              .x_dim = 2 * c.v_dim,
                              .x_first = first,
                              .out = out,
                              .out_dim = c.v_dim,
                              .out_first = 0,
                              .num_heads = c.num_heads,
                              .count = c.v_dim});
  };
  split(0, gate_and_y.columns(0, inner));
  split(c.v_dim, x);
  convolve(s, {x, a.conv, nullptr, nullptr});
  product(s, a.conv, w.x, {}, a.low);
  const TensorView b = a.low.columns(0, c.d_state);
  const TensorView c_row = a.low.columns(c.d_state, c.d_state);
  const TensorView low_dt = a.low.columns(2 * int64_t{c.d_state}, c.dt_rank);
  norm(s, b, w.b_norm, b);
  norm(s, c_row, w.c_norm, c_row);
  norm(s, low_dt, w.dt_norm, low_dt);
  product(s, low_dt, w.dt, {}, a.dt);
  scan_heads(s, {.q = c_row,
                 .k = b,
                 .v = a.conv,
                 .dt = a.dt,
                 .beta = nullptr,
                 .out = gate_and_y.columns(inner, inner)});
  gate_rows(s, gate_and_y);
}

void Decoder::lightning(const LayerStep& s, const TensorView& in) {
  const RecurrentConfig& c = config_.recurrent;
  const Activations::Recurrent& a = act_.recurrent;
  const int64_t inner = c.inner;
  product(s, in, s.weights.recurrent.in, {}, a.row.columns(0, c.in_width()));
  const TensorView heads = a.row.columns(0, 3 * inner);
  const TensorView gate = a.row.columns(3 * inner, inner);
  ops_.encoder->sigmoid_gate(state(), {.batch = &s.batch, .x = heads, .gate = heads});  // silu
  const auto part = [&](int32_t number) {
    const TensorView out = a.row.columns((4 + number) * inner, inner);
    ops_.copy_heads(state(), {.batch = &s.batch,
                              .x = heads,
                              .x_dim = 3 * c.k_dim,
                              .x_first = number * c.k_dim,
                              .out = out,
                              .out_dim = c.k_dim,
                              .out_first = 0,
                              .num_heads = c.num_heads,
                              .count = c.k_dim});
    return out;
  };
  scan_heads(s,
             {.q = part(0), .k = part(1), .v = part(2), .dt = {}, .beta = nullptr, .out = a.out});
  norm(s, a.out, s.weights.recurrent.norms.front(), a.out);
  ops_.encoder->sigmoid_gate(state(), {.batch = &s.batch, .x = a.out, .gate = gate});
}

void Decoder::scan_wkv(const LayerStep& s, const WkvRows& rows) {
  const RecurrentConfig& c = config_.recurrent;
  kernels::StatePart part = s.state;
  part.offset += 4 * c.conv_values();
  ops_.recurrent->head_scan(state(),
                            {.batch = &s.batch,
                             .num_heads = c.num_heads,
                             .num_k_heads = c.num_heads,
                             .k_dim = c.k_dim,
                             .v_dim = c.v_dim,
                             .q = rows.r,
                             .k = rows.k,
                             .v = rows.v,
                             .dt = rows.decay,
                             .dt_bias = nullptr,
                             .a = nullptr,
                             .row_decays = true,
                             .erased = &rows.erased,
                             .removed = &rows.removed,
                             .state = part,
                             .kept = kept_rows(act_.recurrent.scan_kept, s.spec.state_index),
                             .out = act_.recurrent.out});
}

void Decoder::wkv(const LayerStep& s, const TensorView& in) {
  const RecurrentConfig& c = config_.recurrent;
  const DecoderWeights::Layer::Recurrent::Wkv& w = s.weights.recurrent.wkv;
  const Activations::Recurrent& a = act_.recurrent;
  const auto part = [&](int32_t number) {
    return a.row.columns(number * int64_t{c.inner}, c.inner);
  };
  convolve(s, {in, a.row.columns(0, c.num_mixed() * int64_t{c.inner}), nullptr, nullptr});
  const bool first = s.index == 0;
  const TensorView r = part(c.num_mixed()), k = part(c.num_mixed() + 1);
  const TensorView v = first ? a.first_v : part(c.num_mixed() + 2);
  const TensorView v_gate = part(3), gate = part(c.num_mixed() - 1);
  const bool gated = c.gate_rank > 0;
  int64_t used = 0;
  const auto low = [&](const WeightHandle& to_low) {
    const TensorView columns = a.low.columns(used, to_low ? to_low->rows : 0);
    used += columns.cols;
    return columns;
  };
  const TensorView low_decay = low(w.decay_in), low_rate = low(w.rate_in), low_v = low(w.v_in),
                   low_gate = low(w.gate_in);
  products(s, {{part(0), w.r, r},
               {part(2), w.k, k},
               {part(3), w.v, v},
               {part(1), w.decay_in, low_decay},
               {part(4), w.rate_in, low_rate},
               {part(3), w.v_in, low_v},
               {gate, w.gate_in, low_gate}});
  ops_.soft_cap(state(),  // tanh
                {.batch = &s.batch, .rows = Rows::kTokens, .soft_cap = 1, .x = low_decay});
  if (gated) {
    ops_.encoder->sigmoid_gate(state(),
                               {.batch = &s.batch, .x = low_gate, .gate = low_gate, .alone = true});
  }
  // Each takes the place of the mixed row that it came from.
  products(s, {{low_decay, w.decay_out, part(1)},
               {low_rate, w.rate_out, part(4)},
               {low_v, w.v_out, v_gate},
               {low_gate, w.gate_out, gate}});
  const WkvRows rows = {
      .r = r, .k = k, .v = v, .decay = part(1), .removed = part(4), .erased = part(0)};
  ops_.recurrent->wkv_inputs(state(), {.batch = &s.batch,
                                       .head_dim = c.k_dim,
                                       .k = k,
                                       .v = v,
                                       .decay = rows.decay,
                                       .rate = rows.removed,
                                       .erased = rows.erased,
                                       .erased_scale = w.erased_scale.get(),
                                       .rate_bias = w.rate_bias.get(),
                                       .k_scale = w.k_scale.get(),
                                       .decay_bias = w.decay_bias.get(),
                                       .first_v = first ? nullptr : &a.first_v,
                                       .v_gate = first ? nullptr : &v_gate,
                                       .v_gate_bias = w.v_bias.get()});
  scan_wkv(s, rows);
  ops_.recurrent->wkv_output(state(), {.batch = &s.batch,
                                       .head_dim = c.k_dim,
                                       .y = a.out,
                                       .q = r,
                                       .k = k,
                                       .v = v,
                                       .bonus = w.bonus.get(),
                                       .norm = w.norm.get(),
                                       .norm_bias = w.norm_bias.get(),
                                       .eps = kHeadNormEps,
                                       .gate = gated ? &gate : nullptr});
}

void Decoder::recurrent(const LayerStep& s, const TensorView& in) {
  const RecurrentConfig& c = config_.recurrent;
  const TensorView& row = act_.recurrent.row;
  switch (c.kind) {
    case Kind::kNone: break;
    case Kind::kGatedDelta: return gated_delta(s, in);
    case Kind::kKimiDelta: return kimi_delta(s, in);
    case Kind::kMamba: return mamba(s, in);
    case Kind::kMamba2: return mamba2(s, in);
    case Kind::kPlamo: return plamo(s, in);
    case Kind::kLightning: return lightning(s, in);
    case Kind::kWkv: return wkv(s, in);
    case Kind::kShortConv: {
      product(s, in, s.weights.recurrent.in, {}, row.columns(0, c.in_width()));
      const TensorView b = row.columns(0, c.inner);
      const TensorView gate = row.columns(c.inner, c.inner);
      return convolve(s,
                      {row.columns(2 * int64_t{c.inner}, c.inner), act_.recurrent.out, &b, &gate});
    }
  }
  HEARTH_CHECK(false, "a recurrent layer of no kind");
}

}  // namespace hearth::models
