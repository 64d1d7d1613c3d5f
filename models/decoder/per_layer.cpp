// Embeddings for each layer: in addition to the embedding that enters the first layer, each token
// has one for every layer, which that layer adds at its end.
//
//   input_l = (norm(x_0 W_proj / sqrt(width))_l + embed(token)_l * sqrt(per_layer_width)) /
//   sqrt(2),
//             x_0 being the scaled embedding
//   branch = norm((gelu(x W_gate) * input_l) W_out)
//
// Source: Google 2025 (Gemma 3n) and 2026 (Gemma 4), the published code.

#include <numbers>

#include "models/decoder/decoder.h"

namespace hearth::models {

using kernels::BatchIndex;
using kernels::TensorView;

void Decoder::embed_per_layer(const BatchIndex& batch) {
  constexpr float kHalf = 1 / std::numbers::sqrt2_v<float>;
  const Activations::PerLayer& a = act_.per_layer;
  ops_.embed(state(), {.batch = &batch,
                       .table = weights_.per_layer.embedding.get(),
                       .scale = root(config_.per_layer_width) * kHalf,
                       .out = a.inputs});
  multiply(
      {.batch = &batch, .x = act_.x, .w = weights_.per_layer.projection.get(), .out = a.projected});
  // The norm of a product divided by sqrt(width) is that of the product with `width` times epsilon.
  ops_.rms_norm(state(), {.batch = &batch,
                          .x = a.projected,
                          .weight = weights_.per_layer.norm.get(),
                          .eps = config_.eps / inverse(config_.width),
                          .out = a.projected});
  ops_.add_scaled(state(), {.batch = &batch, .x = a.projected, .scale = kHalf, .out = a.inputs});
}

void Decoder::per_layer_branch(const LayerStep& s, const TensorView& in) {
  const int64_t width = config_.per_layer_width;
  const Activations::PerLayer& a = act_.per_layer;
  const WeightHandle none;
  product(s, in, s.weights.per_layer.gate, none, a.gate_up.columns(0, width));
  copy_columns(s.batch, a.inputs, s.index * width, a.gate_up.columns(width, width));
  ops_.gated_activation(state(), {.batch = &s.batch,
                                  .gate_up = a.gate_up,
                                  .activation = config_.activation,
                                  .out = a.gated,
                                  .reader = s.weights.per_layer.out.get()});
  product(s, a.gated, s.weights.per_layer.out, none, act_.branch);
  norm(s, act_.branch, s.weights.per_layer.post_norm, act_.branch);
}

}  // namespace hearth::models
