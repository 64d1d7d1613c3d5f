#pragma once
// The tensors of a decoder's file, found by name and checked by shape before any is loaded.

#include <deque>
#include <vector>

#include "kernels/base/result.h"
#include "models/decoder/decoder_config.h"
#include "models/gguf/gguf_file.h"

namespace hearth::models {

/// Null if the family or the file has no such tensor.
struct LayerTensors {
  const GgufTensor *attn_norm, *attn_norm_bias;
  const GgufTensor *fused_qkv, *fused_qkv_bias;  ///< in place of the six below
  const GgufTensor *q, *k, *v, *q_bias, *k_bias, *v_bias;
  const GgufTensor *q_norm, *k_norm;
  const GgufTensor *q_norms, *k_norms;  ///< in place of them, a row per head
  const GgufTensor* attn_gate;
  const GgufTensor *attn_out, *attn_bias, *attn_post_norm;
  const GgufTensor *ffn_norm, *ffn_norm_bias;
  const GgufTensor* fused_gate_up;                    ///< in place of the four below
  const GgufTensor *gate, *up, *gate_bias, *up_bias;  ///< no gate: gated_ffn is false
  const GgufTensor *down, *down_bias, *ffn_post_norm;
  const GgufTensor *router, *gate_experts, *up_experts, *down_experts;
  const GgufTensor* gate_up_experts;  ///< in place of gate_experts and up_experts
  const GgufTensor *router_bias, *gate_experts_bias, *up_experts_bias, *down_experts_bias;
  const GgufTensor *selection_bias, *shared_gate;
  const GgufTensor* sinks;
  const GgufTensor *q_a, *q_a_norm, *kv_a, *kv_a_norm, *k_b, *v_b;  ///< latent attention; q: q_b
  /// Of experts next to a dense feed-forward.
  const GgufTensor *router_norm, *expert_norm, *dense_post_norm, *expert_post_norm, *expert_scale;
  const GgufTensor *per_layer_gate, *per_layer_out, *per_layer_post_norm;
  const GgufTensor* scale;
  const GgufTensor *altup_router_norm, *altup_router, *altup_predict, *altup_correct, *altup_scale;
  const GgufTensor *laurel_in, *laurel_out, *laurel_post_norm;
  struct Recurrent {
    const GgufTensor* in[6];  ///< joined in this order, up to the first null
    const GgufTensor *conv, *conv_bias;
    const GgufTensor *conv_k, *conv_v;  ///< kKimiDelta: `conv` is that of q
    const GgufTensor *x, *dt, *dt_bias, *a, *skip;
    const GgufTensor *norm, *dt_norm, *b_norm, *c_norm;
    const GgufTensor* gate;
    const GgufTensor* out;
    const GgufTensor* shift;  ///< of ffn_shift
    struct Wkv {
      const GgufTensor *r, *k, *v;
      const GgufTensor *decay_in, *decay_out, *rate_in, *rate_out, *v_in, *v_out;
      const GgufTensor *gate_in, *gate_out;
      const GgufTensor *decay_bias, *rate_bias, *v_bias;
      const GgufTensor *erased_scale, *k_scale, *bonus, *norm, *norm_bias;
    } wkv;
  } recurrent;
};

/// Of the draft layer, in addition to those of a layer. The last three may be null: the model's
/// own.
struct DraftTensors {
  const GgufTensor *pair_proj, *embedding_norm, *hidden_norm;
  const GgufTensor *embedding, *head_norm, *head;
};

struct DecoderTensors {
  const GgufTensor* embedding;
  const GgufTensor *embedding_norm, *embedding_norm_bias;
  const GgufTensor* rope_divisors;
  const GgufTensor *rope_long, *rope_short;
  const GgufTensor *per_layer_embedding, *per_layer_projection, *per_layer_norm;
  const GgufTensor *altup_in, *altup_out;
  std::vector<LayerTensors> layers;  ///< as DecoderConfig::layers
  DraftTensors draft;
  const GgufTensor *output_norm, *output_norm_bias;
  const GgufTensor* output;

  /// kCorrupt, kUnsupported: as TensorSet, and for a tensor that was not requested.
  static Result<DecoderTensors> find(const GgufFile& file, const DecoderConfig& config);
};

/// Replaces the tensors of products by the rows of config.share, which are views in `cut`
/// (share.cpp). Joined ones are replaced by their parts.
void cut_to_share(const DecoderConfig& config, DecoderTensors* tensors,
                  std::deque<GgufTensor>* cut);

}  // namespace hearth::models
