// Mixture of experts: a router's logits choose a few feed-forwards for each token.
//
//   shares = softmax or sigmoid(h W_router), the largest `used` of them (MoeRouteArgs)
//   x += sum of share_e * (act(gate_e) * up_e) W_down_e,  gate_e, up_e = h W_gate_up_e
//
// An expert that all tokens use may have a gate:
//
//   x += sigmoid(h w_gate) * (act(gate) * up) W_down
//
// Experts next to a dense feed-forward (Gemma 4) have a router with a norm of its own and a scale
// for each expert:
//
//   x += norm(norm(feed-forward(norm(x))) + norm(experts(norm(x))))
//
// Without gates an expert is relu(h W_up)^2 W_down.
//
// Source: Shazeer et al. 2017 section 2; Jiang et al. 2024 (Mixtral) section 2.1; Qwen Team 2024
// (Qwen1.5-MoE) on the shared expert's gate.

#include "kernels/ops/encoder_ops.h"
#include "models/decoder/decoder.h"

namespace hearth::models {

void Decoder::route(const LayerStep& s, const kernels::TensorView& in) {
  const ExpertConfig& e = config_.experts;
  const Activations::Experts& a = act_.experts;
  multiply({.batch = &s.batch, .x = in, .w = s.weights.router.get(), .out = a.logits});
  if (s.weights.router_bias) {
    ops_.add_bias(state(),
                  {.batch = &s.batch, .bias = s.weights.router_bias.get(), .out = a.logits});
  }
  if (e.logit_scale != 1) {
    ops_.soft_cap(
        state(),
        {.batch = &s.batch, .rows = kernels::Rows::kTokens, .scale = e.logit_scale, .x = a.logits});
  }
  ops_.moe_route(state(), {.batch = &s.batch,
                           .logits = a.logits,
                           .top_k = e.used,
                           .normalize = e.normalize,
                           .scale = e.scale * config_.residual_scale,
                           .ids = a.ids,
                           .weights = a.shares,
                           .sigmoid = e.sigmoid,
                           .selection_bias = s.weights.selection_bias.get(),
                           .num_groups = e.num_groups,
                           .groups_used = e.groups_used,
                           .expert_scale = s.weights.expert_scale.get()});
}

void Decoder::sum_experts(const LayerStep& s, const kernels::TensorView& in,
                          const kernels::TensorView& out, bool add) {
  const ExpertConfig& e = config_.experts;
  const Activations::Experts& a = act_.experts;
  const auto add_expert_bias = [&](const WeightHandle& bias, const kernels::TensorView& rows) {
    if (!bias) return;
    ops_.add_bias(state(), {.batch = &s.batch, .bias = bias.get(), .out = rows, .ids = &a.ids});
  };
  ops_.moe_matmul(state(), {.batch = &s.batch,
                            .x = in,
                            .w = s.weights.gate_up_experts.get(),
                            .ids = a.ids,
                            .out = a.gate_up});
  add_expert_bias(s.weights.gate_up_experts_bias, a.gate_up);
  if (!config_.gated_ffn) {
    ops_.encoder->relu_squared(state(),
                               {.batch = &s.batch, .x = a.gate_up, .rows_per_token = e.used});
  } else {
    ops_.gated_activation(state(), {.batch = &s.batch,
                                    .gate_up = a.gate_up,
                                    .activation = config_.activation,
                                    .out = a.gated,
                                    .rows_per_token = e.used});
  }
  ops_.moe_matmul(state(), {.batch = &s.batch,
                            .x = config_.gated_ffn ? a.gated : a.gate_up,
                            .x_per_choice = true,
                            .w = s.weights.down_experts.get(),
                            .ids = a.ids,
                            .out = a.out});
  add_expert_bias(s.weights.down_experts_bias, a.out);
  ops_.moe_combine(state(),
                   {.batch = &s.batch, .x = a.out, .weights = a.shares, .out = out, .add = add});
}

void Decoder::add_feed_forward_with_experts(const LayerStep& s) {
  norm(s, act_.x, s.weights.ffn_norm, act_.normed, s.weights.gate_up.get());
  gated(s, act_.normed);
  product(s, s.gated, s.weights.down, s.weights.down_bias, act_.branch);
  norm(s, act_.branch, s.weights.dense_post_norm, act_.branch);

  norm(s, act_.x, s.weights.router_norm, act_.normed);
  route(s, act_.normed);
  norm(s, act_.x, s.weights.expert_norm, act_.normed);
  sum_experts(s, act_.normed, act_.normed, false);  // their products have read the rows already
  norm(s, act_.normed, s.weights.expert_post_norm, act_.normed);

  ops_.add_scaled(state(), {.batch = &s.batch, .x = act_.normed, .out = act_.branch});
  norm(s, act_.branch, s.weights.ffn_post_norm, act_.branch);
  ops_.add_scaled(state(), {.batch = &s.batch, .x = act_.branch, .out = act_.x});
}

void Decoder::add_shared_expert(const LayerStep& s, const kernels::TensorView& in) {
  const kernels::TensorView& gate = act_.experts.shared_gate;
  multiply({.batch = &s.batch, .x = in, .w = s.weights.shared_gate.get(), .out = gate});
  gated(s, in);
  product(s, s.gated, s.weights.down, s.weights.down_bias, act_.branch);
  ops_.add_scaled(state(), {.batch = &s.batch,
                            .x = act_.branch,
                            .scale = config_.residual_scale,
                            .out = act_.x,
                            .gate = &gate});
}

}  // namespace hearth::models
