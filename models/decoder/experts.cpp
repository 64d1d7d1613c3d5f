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

#include <algorithm>

#include "kernels/base/check.h"
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
  if (config_.experts.apart) return sum_experts_apart(s, in, out, add);
  const Activations::Experts& a = act_.experts;
  expert_products(ops_, s.batch, s.weights.experts, a, in);
  ops_.moe_combine(state(),
                   {.batch = &s.batch, .x = a.out, .weights = a.shares, .out = out, .add = add});
}

// Rows, choices and shares go to the experts' table, and the sum comes back. The model's own table
// meanwhile computes the choices of hot experts, whose products join the others before the sum.
void Decoder::sum_experts_apart(const LayerStep& s, const kernels::TensorView& in,
                                const kernels::TensorView& out, bool add) {
  const Activations::Experts& a = act_.experts;
  const Activations::Experts& h = expert_rows_.views;
  const int64_t tokens = s.batch.num_tokens;
  const auto fetch = [&](const kernels::TensorView& to, const kernels::TensorView& from,
                         int64_t rows) {
    HEARTH_CHECK(from.row_stride == from.cols && to.cols == from.cols, "{} columns", from.cols);
    ops_.copy_to_host(state(), to.data, from.data, rows * from.cols * sizeof(float));
  };
  fetch(h.ids, a.ids, tokens);
  fetch(h.shares, a.shares, tokens);
  fetch(expert_rows_.in, in, tokens);
  const Choices choices = divide_choices(s);
  if (choices.any_hot) {
    ops_.copy_to_device(state(), a.ids.data, expert_rows_.hot_ids.data,
                        tokens * a.ids.cols * sizeof(int32_t));
    expert_products(ops_, s.batch, s.weights.hot_experts, a, in);
  }
  kernels::BatchIndex rows;  // the experts' ops read no more of it, and the rest is not host memory
  rows.num_tokens = s.batch.num_tokens;
  if (choices.any_cold) {
    expert_products(expert_ops_, rows, s.weights.experts, h, expert_rows_.in);
  }
  if (choices.any_hot) {
    fetch(expert_rows_.hot_out, a.out, tokens * a.ids.cols);
    for (int64_t i = 0; i < tokens * a.ids.cols; ++i) {
      if (!is_hot_[i]) continue;
      std::copy_n(expert_rows_.hot_out.row<float>(i), h.out.cols, h.out.row<float>(i));
    }
  }
  expert_ops_.moe_combine(
      expert_ops_.state.get(),
      {.batch = &rows, .x = h.out, .weights = h.shares, .out = h.sum, .add = false});
  const kernels::TensorView& to = add ? a.sum : out;
  ops_.copy_to_device(state(), to.data, h.sum.data, tokens * h.sum.cols * sizeof(float));
  if (add) ops_.add_scaled(state(), {.batch = &s.batch, .x = a.sum, .out = out});
}

Decoder::Choices Decoder::divide_choices(const LayerStep& s) {
  const kernels::TensorView& ids = expert_rows_.views.ids;
  const int64_t used = ids.cols, count = s.batch.num_tokens * used;
  auto* const cold = ids.row<int32_t>(0);
  if (expert_counts_.size() <= size_t(s.index)) expert_counts_.resize(s.index + 1);
  std::vector<uint64_t>& counts = expert_counts_[s.index];
  counts.resize(config_.experts.count);
  for (int64_t i = 0; i < count; ++i) ++counts[cold[i]];
  const std::vector<int32_t>& place = s.weights.hot_place;
  if (place.empty()) return {.any_cold = true};
  is_hot_.assign(count, false);
  int32_t any_cold = -1, any_hot = -1;
  for (int64_t i = 0; i < count; ++i) {
    is_hot_[i] = place[cold[i]] >= 0;
    (is_hot_[i] ? any_hot : any_cold) = cold[i];
  }
  row_ids_.assign(cold, cold + count);
  // A token's own other choice, if it has one, so that no more experts are read.
  auto* const hot = expert_rows_.hot_ids.row<int32_t>(0);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t first = i / used * used;
    const auto other = [&](bool of_hot, int32_t any) {
      for (int64_t j = first; j < first + used; ++j) {
        if (is_hot_[j] == of_hot) return row_ids_[j];
      }
      return any;
    };
    if (any_hot >= 0) hot[i] = place[is_hot_[i] ? row_ids_[i] : other(true, any_hot)];
    if (any_cold >= 0 && is_hot_[i]) cold[i] = other(false, any_cold);
  }
  return {any_hot >= 0, any_cold >= 0};
}

uint64_t Decoder::expert_row_bytes(int32_t max_tokens) const {
  if (!config_.experts.apart) return 0;
  ExpertRows measured;
  const uint64_t bytes = measured.lay_out(config_, max_tokens, nullptr, nullptr);
  return bytes + measured.shared_bytes;
}

Result<void> Decoder::reserve_expert_rows(int32_t max_tokens) {
  const uint64_t bytes = expert_rows_.lay_out(config_, max_tokens, nullptr, nullptr);
  HEARTH_ASSIGN_OR_RETURN(expert_memory_,
                          kernels::DeviceBuffer::allocate(expert_ops_, bytes, "experts' rows"));
  shared_memory_ = kernels::HostBuffer(ops_, expert_rows_.shared_bytes);
  expert_rows_.lay_out(config_, max_tokens, expert_memory_.data(), shared_memory_.as<std::byte>());
  return {};
}

void Decoder::expert_products(const kernels::OpTable& ops, const kernels::BatchIndex& batch,
                              const DecoderWeights::Layer::Experts& weights,
                              const Activations::Experts& a, const kernels::TensorView& in) {
  const ExpertConfig& e = config_.experts;
  void* const state = ops.state.get();
  const auto add_bias = [&](const WeightHandle& bias, const kernels::TensorView& rows) {
    if (!bias) return;
    ops.add_bias(state, {.batch = &batch, .bias = bias.get(), .out = rows, .ids = &a.ids});
  };
  ops.moe_matmul(
      state,
      {.batch = &batch, .x = in, .w = weights.gate_up.get(), .ids = a.ids, .out = a.gate_up});
  add_bias(weights.gate_up_bias, a.gate_up);
  if (!config_.gated_ffn) {
    ops.encoder->relu_squared(state, {.batch = &batch, .x = a.gate_up, .rows_per_token = e.used});
  } else {
    ops.gated_activation(state, {.batch = &batch,
                                 .gate_up = a.gate_up,
                                 .activation = config_.activation,
                                 .out = a.gated,
                                 .rows_per_token = e.used});
  }
  ops.moe_matmul(state, {.batch = &batch,
                         .x = config_.gated_ffn ? a.gated : a.gate_up,
                         .x_per_choice = true,
                         .w = weights.down.get(),
                         .ids = a.ids,
                         .out = a.out});
  add_bias(weights.down_bias, a.out);
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
