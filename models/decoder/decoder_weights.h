#pragma once
// The weights of a decoder: found in a file, checked, and loaded into a device.

#include <cstdint>
#include <vector>

#include "kernels/base/result.h"
#include "kernels/ops.h"
#include "models/decoder/decoder_config.h"
#include "models/weights/weight_packer.h"

namespace hearth::models {

struct DecoderWeights {
  /// Null if the family or the file has no such tensor.
  struct Layer {
    WeightHandle attn_norm, attn_norm_bias;  ///< vectors of width
    WeightHandle qkv;                        ///< (qkv_width, width): q, then k, then v
    WeightHandle qkv_bias;
    WeightHandle kv, kv_bias;     ///< of the draft layer, whose `qkv` is then q alone
    WeightHandle q_norm, k_norm;  ///< vectors of k_dim (kHeads), or of all heads
    std::vector<WeightHandle> q_norms, k_norms;  ///< per head, vectors of k_dim (kEachHead)
    WeightHandle attn_gate;                      ///< (out_width, width)
    WeightHandle attn_out;                       ///< (width, out_width)
    WeightHandle attn_bias;
    WeightHandle attn_post_norm;           ///< vector of width
    WeightHandle ffn_norm, ffn_norm_bias;  ///< vectors of width
    WeightHandle gate_up;  ///< (2 ffn_width, width): gate, then up; or up alone: (ffn_width, width)
    WeightHandle gate_up_bias;
    WeightHandle down;  ///< (width, ffn_width)
    WeightHandle down_bias;
    WeightHandle ffn_post_norm;  ///< vector of width
    // With experts, gate_up and down belong to the expert that all tokens use.
    WeightHandle router;  ///< (experts.count, width)
    struct Experts {
      WeightHandle gate_up;  ///< per expert (2 experts.ffn_width, width): gate, then up
      WeightHandle down;     ///< per expert (width, experts.ffn_width)
      WeightHandle gate_up_bias, down_bias;  ///< vectors, expert after expert
    } experts;
    Experts hot_experts;             ///< of those apart, the ones that the model's table has, too
    std::vector<int32_t> hot_place;  ///< of each expert among these, or -1; empty: there are none
    WeightHandle router_bias;        ///< vector of experts.count
    WeightHandle selection_bias;     ///< vector of experts.count
    WeightHandle shared_gate;        ///< (1, width)
    WeightHandle sinks;              ///< vector of num_heads
    // Latent attention, in place of qkv.
    WeightHandle q_a;        ///< (q_rank, width), or null
    WeightHandle q_a_norm;   ///< vector of q_rank
    WeightHandle q;          ///< (num_heads * head_dim, q_rank or width)
    WeightHandle kv_a;       ///< (kv_rank + rotated, width)
    WeightHandle kv_a_norm;  ///< vector of kv_rank
    WeightHandle k_b;        ///< per head (kv_rank, plain): from q to the latent row's width
    WeightHandle v_b;        ///< per head (v_dim, kv_rank)
    bool v_is_k = false;     ///< qkv has no rows of v: it is made from the product for k
    WeightHandle v_norm;     ///< vector of v_dim, all 1
    // Experts next to a dense feed-forward.
    WeightHandle router_norm;                        ///< vector of width
    WeightHandle expert_norm;                        ///< vector of width
    WeightHandle dense_post_norm, expert_post_norm;  ///< vectors of width
    WeightHandle expert_scale;                       ///< vector of experts.count
    float scale = 1;                                 ///< of the layer's output
    struct PerLayer {
      WeightHandle gate;       ///< (per_layer_width, width)
      WeightHandle out;        ///< (width, per_layer_width)
      WeightHandle post_norm;  ///< vector of width
    } per_layer;
    struct AltUp {
      WeightHandle router_norm;  ///< vector of width
      WeightHandle router;       ///< (streams, width)
      WeightHandle predict;      ///< (streams * streams, streams)
      WeightHandle correct;      ///< (streams, streams)
      WeightHandle scale;        ///< vector of width
      WeightHandle laurel_in;    ///< (laurel_rank, width)
      WeightHandle laurel_out;   ///< (width, laurel_rank)
      WeightHandle laurel_norm;  ///< vector of width
    } altup;
    struct Recurrent {                       ///< sizes of RecurrentConfig
      WeightHandle in;                       ///< (in_width, width)
      WeightHandle conv;                     ///< vector of (taps, conv_channels)
      WeightHandle conv_bias;                ///< vector of conv_channels
      WeightHandle x;                        ///< (dt_rank + 2 d_state, inner)
      WeightHandle dt;                       ///< (inner, dt_rank), or (inner, k_dim)
      WeightHandle gate;                     ///< (inner, k_dim)
      WeightHandle dt_bias;                  ///< vector of num_heads, or of inner
      WeightHandle a;                        ///< vector of num_heads, or of (d_state, inner)
      WeightHandle skip;                     ///< like dt_bias
      std::vector<WeightHandle> norms;       ///< vectors of v_dim, or of each group's part of inner
      WeightHandle dt_norm, b_norm, c_norm;  ///< vectors of dt_rank, d_state, d_state
      WeightHandle out;                      ///< (width, inner)
      WeightHandle shift;                    ///< of ffn_shift: ShortConvArgs::weight
      struct Wkv {                           ///< of kWkv, whose `conv` is of num_mixed() rows
        WeightHandle r, k, v;                ///< (inner, width)
        WeightHandle decay_in, rate_in, v_in, gate_in;      ///< (rank, width)
        WeightHandle decay_out, rate_out, v_out, gate_out;  ///< (inner, rank)
        WeightHandle decay_bias, rate_bias, v_bias;  ///< these and the next: vectors of inner
        WeightHandle erased_scale, k_scale, bonus;
        WeightHandle norm, norm_bias;
      } wkv;
    } recurrent;
  };

  int32_t vocab_size = 0;
  WeightHandle embedding;  ///< (vocab_size, width), where rows or logits are made
  WeightHandle embedding_norm, embedding_norm_bias;  ///< vectors of width (all 1), or null
  std::vector<WeightHandle> rope_frequencies;        ///< per config.ropes: vector of rope.dim / 2
  WeightHandle long_rope_frequencies;                ///< replaces the first in a long context
  struct PerLayer {
    WeightHandle embedding;   ///< (vocab_size, num_layers * per_layer_width)
    WeightHandle projection;  ///< (num_layers * per_layer_width, width)
    WeightHandle norm;        ///< vector of per_layer_width
  } per_layer;                ///< if config.per_layer_width > 0
  struct AltUp {
    WeightHandle in;                ///< ((streams - 1) * width, width)
    std::vector<WeightHandle> out;  ///< streams - 1 of (width, width)
    WeightHandle ones;              ///< vector of width
    WeightHandle bias;              ///< vector of streams, all 1
  } altup;                          ///< if config.altup.streams > 0
  std::vector<Layer> layers;        ///< as DecoderConfig::layers
  struct Draft {
    WeightHandle pair_proj;                    ///< (width, 2 width)
    WeightHandle embedding_norm, hidden_norm;  ///< vectors of width
    WeightHandle before;                       ///< vector of 2 * width: ShortConvArgs::weight
    WeightHandle embedding, head_norm;         ///< null: the model's own
    WeightHandle head;                         ///< (draft_vocab, width), or null: the model's own
  } draft;                                     ///< if config.draft_layer
  WeightHandle output_norm, output_norm_bias;
  WeightHandle output;  ///< (vocab_size, width), or null if the head is tied to the embedding

  const kernels::Weight* head() const { return output ? output.get() : embedding.get(); }
  MatrixParts parts;          ///< the file's tensors in these
  uint64_t bytes = 0;         ///< of all, on the device
  uint64_t expert_bytes = 0;  ///< in addition, on the experts' table
  uint64_t draft_bytes = 0;   ///< of those, the draft layer's

  /// Checks all tensors, then loads those of config.stage layer by layer and releases the file's
  /// pages as it goes. Errors name the tensor: kCorrupt, kUnsupported, kOutOfMemory.
  static Result<DecoderWeights> load(const GgufFile& file, const DecoderConfig& config,
                                     const kernels::OpTable& ops, const LoadProgressFn& progress,
                                     const LoadOptions& options = {});
};

/// ShortConvArgs::weight of two taps that put each row in the place of the one after it.
Result<WeightHandle> pack_row_before(WeightPacker& packer, int32_t width);

}  // namespace hearth::models
