#pragma once
// Transformers in which every token attends to the whole text, as op calls. They make no logits:
// the result is the rows after the last layer.
//
//   x = norm(embed(token) + token_type + position)
//   for each layer:   x = norm(x + attention(x) W_out);  x = norm(x + feed_forward(x) W_down)
//
// A text is computed in one step, and the K and V of a layer are needed only within that layer, so
// all layers share the same place in the same blocks.
//
// Source: Vaswani et al. 2017; Devlin et al. 2018 (BERT).

#include <memory>

#include "kernels/ops/encoder_ops.h"
#include "models/encoder/encoder_config.h"
#include "models/encoder/encoder_weights.h"
#include "models/model.h"

namespace hearth::models {

class Encoder final : public Model {
 public:
  /// Loads the weights that `config` needs. Errors as of load_model.
  static Result<std::unique_ptr<Model>> load(const GgufFile& file, const EncoderConfig& config,
                                             const kernels::OpTable& ops,
                                             const LoadProgressFn& progress);

  const ModelInfo& info() const override { return info_; }
  Result<void> reserve(int32_t max_tokens, int32_t max_outputs) override;
  uint64_t activation_bytes(int32_t max_tokens, int32_t max_outputs) const override;
  void forward(const StepArgs& args) override;
  kernels::TensorView final_rows(const kernels::BatchIndex&) override { return act_.x; }

 private:
  /// Rows of one step, all f32, in one piece of device memory.
  struct Activations {
    kernels::TensorView x;        ///< (tokens, width)
    kernels::TensorView qkv;      ///< (tokens, 3 width)
    kernels::TensorView attn;     ///< (tokens, width)
    kernels::TensorView up;       ///< (tokens, ffn_width), gated: 2 ffn_width
    kernels::TensorView gated;    ///< (tokens, ffn_width), if config.gated
    kernels::TensorView cos_sin;  ///< (tokens, rope.dim), if config.rope
  };

  Encoder(const EncoderConfig& config, EncoderWeights weights, ModelInfo info, kernels::OpTable ops,
          const kernels::EncoderOps& more);
  Activations lay_out(int32_t tokens, std::byte* base, uint64_t* bytes) const;
  void embed(const kernels::BatchIndex& batch);
  void attention(const kernels::BatchIndex& batch, const KvPool& pool,
                 const EncoderWeights::Layer& layer);
  void feed_forward(const kernels::BatchIndex& batch, const EncoderWeights::Layer& layer);
  void product(const kernels::BatchIndex& batch, const kernels::TensorView& x,
               const WeightHandle& w, const WeightHandle& bias, const kernels::TensorView& out);
  /// x = norm(x + y W + bias)
  void add_and_norm(const kernels::BatchIndex& batch, const kernels::TensorView& y,
                    const WeightHandle& w, const WeightHandle& bias, const NormWeights& norm);
  void norm(const kernels::BatchIndex& batch, const NormWeights& weights);
  void* state() const { return ops_.state.get(); }

  const EncoderConfig config_;
  ModelInfo info_;
  kernels::OpTable ops_;
  kernels::EncoderOps more_;
  EncoderWeights weights_;
  kernels::DeviceBuffer memory_;
  Activations act_;
};

}  // namespace hearth::models
