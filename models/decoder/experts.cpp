// Mixture of experts: a router's logits choose a few feed-forwards for each token.
//
//   shares = softmax(h W_router), the largest `used` of them
//   x += sum of share_e * (act(gate_e) * up_e) W_down_e,  gate_e, up_e = h W_gate_up_e
//
// Source: Shazeer et al. 2017 section 2; Jiang et al. 2024 (Mixtral) section 2.1.

#include "models/decoder/decoder.h"

namespace hearth::models {

void Decoder::add_experts(const LayerStep& s, const kernels::TensorView& in) {
  const ExpertConfig& e = config_.experts;
  const Activations::Experts& a = act_.experts;
  ops_.matmul(state(), {.batch = &s.batch, .x = in, .w = s.weights.router.get(), .out = a.logits});
  ops_.moe_route(state(), {.batch = &s.batch,
                           .logits = a.logits,
                           .top_k = e.used,
                           .normalize = e.normalize,
                           .scale = e.scale * config_.residual_scale,
                           .ids = a.ids,
                           .weights = a.shares});
  ops_.moe_matmul(state(), {.batch = &s.batch,
                            .x = in,
                            .w = s.weights.gate_up_experts.get(),
                            .ids = a.ids,
                            .out = a.gate_up});
  ops_.gated_activation(state(), {.batch = &s.batch,
                                  .gate_up = a.gate_up,
                                  .activation = config_.activation,
                                  .out = a.gated,
                                  .rows_per_token = e.used});
  ops_.moe_matmul(state(), {.batch = &s.batch,
                            .x = a.gated,
                            .x_per_choice = true,
                            .w = s.weights.down_experts.get(),
                            .ids = a.ids,
                            .out = a.out});
  ops_.moe_combine(state(), {.batch = &s.batch, .x = a.out, .weights = a.shares, .out = act_.x});
}

}  // namespace hearth::models
