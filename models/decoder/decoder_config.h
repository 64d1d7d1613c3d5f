#pragma once
// The sizes and parameters of a decoder, read from a file's metadata and checked, and the common
// parts that its family uses.

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/result.h"
#include "kernels/ops.h"
#include "models/decoder/recurrent_config.h"
#include "models/model.h"
#include "models/weights/metadata.h"
#include "models/weights/rope_frequencies.h"

namespace hearth::models {

/// The norms between the projections and the rotation.
enum class QkNorm {
  kNone,
  kHeads,           ///< each head of q and of k is normed separately
  kWidth,           ///< q and k are normed over all heads together
  kHeadsIfPresent,  ///< as kHeads in a file that has the norms
  kHeadsAfterRope,  ///< as kHeads, after the rotation
  kEachHead,        ///< as kHeads, each head with weights of its own
};

/// The norms of the residual stream: before the branches, and after the last layer.
enum class Norm {
  kRms,
  kLayer,  ///< with biases
  kLayerNoBias,
};

/// How a family's keys differ from those of most (DecoderConfig::load_common).
struct CommonKeys {
  Norm norm = Norm::kRms;
  bool pruned = false;       ///< a layer may have no attention, or no feed-forward (LayerSpec)
  bool hybrid = false;       ///< the same, and no layer needs attention
  bool draft_layer = false;  ///< to be loaded, if the file has one (LoadOptions)
};

inline constexpr int32_t kNoRope = -1;
inline constexpr int32_t kOwnKv = -1;
inline constexpr float kNoCutoff = -std::numeric_limits<float>::infinity();

/// The sizes of one layer, and which parts it has.
struct LayerSpec {
  int32_t num_heads = 0;   ///< of the queries; 0: no attention
  kernels::KvShape kv;     ///< num_heads is a multiple of its num_kv_heads
  int32_t window = 0;      ///< 0: attends to the whole context
  int32_t rope = 0;        ///< of DecoderConfig::ropes; kNoRope: this layer does not use positions
  bool linear = false;     ///< has a product of the normed row in place of attention
  bool recurrent = false;  ///< has a state (RecurrentConfig), in place of attention or next to it
  bool experts = false;    ///< has the experts of DecoderConfig::experts
  int32_t ffn_width = 0;   ///< of the feed-forward that all tokens use; 0: none
  /// The earlier layer whose K and V it attends to; it computes only its queries then and stores
  /// nothing. kOwnKv: its own.
  int32_t kv_owner = kOwnKv;
  bool v_may_be_k = false;  ///< a file without attn_v makes V from the product for K
  /// Of each gate, what is below this many deviations above the mean is cut off (KeepPeaksArgs).
  float gate_cutoff = kNoCutoff;
  // ---- Set by DecoderConfig::group_layers ----
  int32_t group = 0;        ///< of ModelInfo::groups
  int32_t index = 0;        ///< among the layers of that group
  int32_t state_index = 0;  ///< among the recurrent layers
  // ---- Set by DecoderConfig::narrow_to_share: where this share's columns begin among all ----
  int64_t first_out = 0;    ///< of what attention returns
  int64_t first_gated = 0;  ///< of the activated gate

  bool stores_kv() const { return kv_owner == kOwnKv; }
  int64_t q_width() const { return int64_t{num_heads} * kv.k_dim; }
  int64_t out_width() const { return int64_t{num_heads} * kv.v_dim; }
  int64_t qkv_width() const { return q_width() + (stores_kv() ? kv.k_width() + kv.v_width() : 0); }
};

/// A mixture of experts: a feed-forward of which each token uses a few parts.
struct ExpertConfig {
  int32_t count = 0;  ///< 0: no experts
  int32_t used = 0;   ///< per token; 1 to count
  int32_t ffn_width = 0;
  bool normalize = false;                   ///< the shares of the used experts sum to 1
  float scale = 1;                          ///< of the experts' sum
  bool sigmoid = false;                     ///< shares are sigmoids, not a softmax
  int32_t num_groups = 1, groups_used = 1;  ///< of consecutive experts (MoeRouteArgs)
  float logit_scale = 1;                    ///< of the router's logits
  /// They compute next to the layer's dense feed-forward, from norms of their own (experts.cpp).
  bool with_dense = false;
  // ---- Tensors ----
  bool selection_bias = false;  ///< exp_probs_b: required; optional in other families
  bool biases = false;          ///< of the router and of each expert's products
  bool shared_gate = false;     ///< the shared expert is scaled by a sigmoid (ffn_gate_inp_shexp)
  bool apart = false;           ///< they have a table of their own (LoadOptions::experts)
  bool some_hot = false;        ///< and some of them are on the model's table, too
};

/// Multi-head latent attention: K and V of all heads are made from one latent row per token, which
/// is all that is stored, followed by the rotated part of K.
struct LatentAttention {
  int32_t q_rank = 0;   ///< q is made from a latent row, too; 0: from the token's row
  int32_t kv_rank = 0;  ///< width of the latent row; 0: no latent attention
  int32_t plain = 0;    ///< values of each head's q and k that are not rotated
  int32_t rotated = 0;
  int32_t v_dim = 0;  ///< of each head, before the output projection

  int32_t head_dim() const { return plain + rotated; }
};

/// Several residual streams, of which each layer computes one (altup.cpp).
struct AltUp {
  int32_t streams = 0;  ///< 0: one plain residual stream
  int32_t active = 0;   ///< the stream that layers compute
  int32_t laurel_rank = 0;
};

/// Heads that draft, added to the model (draft_heads.cpp).
enum class HeadKind { kNone, kPlain, kChained };

struct DecoderConfig {
  std::string architecture;
  int32_t context_length = 0;
  int32_t width = 0;
  int32_t num_layers = 0;
  int32_t num_draft_layers = 0;  ///< after them in the file, for drafting (nextn)
  bool draft_layer = false;      ///< the first of those is loaded: layers[num_layers]
  LayerRange stage;              ///< of num_layers, those that are loaded (LoadOptions::layers)
  Share share;                   ///< of each layer, what is loaded (LoadOptions::share)
  HeadKind draft_heads = HeadKind::kNone;
  int32_t feature_width = 0;  ///< of the rows of a target's layers (feature_head.h)
  Norm norm = Norm::kRms;
  float eps = 0;
  float post_eps = 0;  ///< of the norms after a branch; load_common sets eps

  std::vector<RopeConfig> ropes;   ///< one, or two: of full layers and of sliding layers
  std::vector<LayerSpec> layers;   ///< num_layers, and the draft layer if it is loaded
  std::vector<LayerGroup> groups;  ///< of layers of equal window and KV shape; at least one

  ExpertConfig experts;
  LatentAttention latent;
  RecurrentConfig recurrent;
  AltUp altup;
  int32_t per_layer_width = 0;  ///< of each token's embedding for each layer; 0: none

  // ---- Set by the family: which parts it uses ----
  kernels::RopePairs pairs = kernels::RopePairs::kHalves;
  kernels::Activation activation = kernels::Activation::kSilu;
  QkNorm qk_norm = QkNorm::kNone;
  bool pre_norms = true;        ///< attn_norm and ffn_norm
  bool post_norms = false;      ///< post_attention_norm and post_ffw_norm
  bool qkv_bias = false;        ///< required; optional in other families
  bool out_bias = false;        ///< attn_output.bias: required; optional in other families
  bool ffn_bias = false;        ///< of ffn_up and ffn_down: required; optional in other families
  bool sinks = false;           ///< attn_sinks: one more logit of each head's softmax
  bool fused_qkv = false;       ///< attn_qkv; allowed in other families, too
  bool fused_gate_up = false;   ///< ffn_up holds gate and up
  bool gated_ffn = true;        ///< if not, the feed-forward is gelu(x W_up) W_down, or with
  bool relu_squared = false;    ///< relu(x W_up)^2 in place of gelu; experts' likewise
  bool attention_gate = false;  ///< attn_gate: its sigmoid multiplies what attention returns
  bool gate_in_q = false;       ///< attn_q has of each head the query, then such a gate
  /// Name of the norm before the feed-forward; empty: none.
  std::string_view ffn_norm = "ffn_norm";
  bool plain_ffn_norm = false;                   ///< its tensor's name has no ".weight"
  std::string_view output_norm = "output_norm";  ///< name of the norm after the last layer
  bool plain_post_norms = false;     ///< the norms after a branch have no ".weight" in their names
  bool rope_divisors = false;        ///< rope_freqs.weight is allowed
  bool needs_rope_divisors = false;  ///< rope_freqs.weight is required
  bool v_norm = false;               ///< each head of v is normed, without weights
  bool layer_scale = false;          ///< layer_output_scale.weight is allowed
  bool long_rope = false;            ///< rope_factors_long.weight and _short are allowed
  float embedding_scale = 1;         ///< of the embedding's rows
  bool embedding_norm = false;       ///< the embedding's rows are normed, without a weight
  bool weighted_embedding_norm = false;  ///< the same with one: token_embd_norm
  float attention_scale = 0;     ///< of q.k; load_common sets 1 / sqrt(attention.key_length)
  float attention_soft_cap = 0;  ///< 0: none
  float position_scale = 0;     ///< q grows with its position (ScaleByPositionArgs); 0: it does not
  int32_t position_length = 1;  ///< of the positions with the same scale
  float residual_scale = 1;     ///< of what attention and feed-forward add
  float normed_stream = 0;      ///< of the normed row, in a family where it is the stream; 0: not
  float logit_scale = 1;        ///< of the logits
  float logit_soft_cap = 0;     ///< 0: none

  /// Of a model that denoises: see attend_to_all.
  CanvasModel canvas;

  /// The largest value of a layer, of which `get` returns one.
  template <typename Get>
  auto most(const Get& get) const {
    auto value = get(layers.front());
    for (const LayerSpec& layer : layers) value = get(layer) > value ? get(layer) : value;
    return value;
  }
  /// Whether a branch is computed completely before it is added to the residual stream.
  bool has_branch() const { return post_norms || residual_scale != 1 || experts.shared_gate; }

  /// Reads the keys that all families have: sizes (one for all layers, or one for each), epsilon,
  /// one rope. All layers have attention without a window and a feed-forward without experts.
  static Result<DecoderConfig> load_common(Metadata& metadata, const CommonKeys& keys = {});
  /// The layers for which `slides` is true attend to a window. A window that covers the context is
  /// ignored.
  void set_window(int32_t window, const std::function<bool(int32_t layer)>& slides);
  /// The other layers use no positions.
  void rotate_only(const std::function<bool(int32_t layer)>& rotated);
  /// Groups the layers by window and KV shape, those without a window first. To be called after a
  /// change of either.
  void group_layers();
  /// The layers for which `is` is true have a state in place of attention, the others attention.
  void set_recurrent(const RecurrentConfig& sizes, const std::function<bool(int32_t layer)>& is);
  /// The same for layers without heads of keys.
  void set_recurrent(const RecurrentConfig& sizes);
  /// Sliding layers rotate with a rope of their own, ropes[1]: rope.freq_base_swa and
  /// rope.dimension_count_swa, which is `head_dim` if missing. By the pattern, not by the window,
  /// which is ignored if it covers the context.
  Result<void> load_sliding_rope(Metadata& metadata, const std::function<bool(int32_t)>& slides,
                                 int32_t head_dim);
  /// attention.shared_kv_layers: so many last layers attend to the KV of the last layer before them
  /// that slides as they do. To be called after all sizes and windows are set.
  Result<void> share_kv(Metadata& metadata, const std::function<bool(int32_t layer)>& slides);
  /// Reads the keys of a model that denoises (tokenizer.ggml.mask_token_id, diffusion.*) into
  /// `usual`, which has the family's rules and defaults. Every token attends to the whole sequence,
  /// which is computed in one step, so all layers store K and V in the same place. To be called
  /// after group_layers.
  Result<void> attend_to_all(Metadata& metadata, const CanvasModel& usual);
  bool is_sliding(int32_t layer) const { return layers[layer].window > 0; }
  bool in_stage(int32_t layer) const { return stage.first <= layer && layer < stage.end; }
  bool has_first_layer() const { return stage.first == 0; }
  bool has_last_layer() const { return stage.end == num_layers; }
  /// Chooses the layers to load; kUnsupported names what cannot be computed in stages.
  Result<void> choose_stage(const LayerRange& chosen);
  StageInfo stage_info(uint64_t weight_bytes) const;
  /// Chooses the share of the layers to load; kUnsupported names what cannot be split.
  Result<void> choose_share(const Share& chosen);
  /// Reduces the layers' sizes from those of the file to those of the share.
  void narrow_to_share();
  /// Reads expert_count and the keys of experts, and gives all layers but the leading dense ones
  /// (leading_dense_block_count) experts in place of their feed-forward. `normalize`: the default
  /// if the file does not set it.
  Result<void> load_experts(Metadata& metadata, bool normalize);
  /// Every layer with experts has one more, of this width, that all tokens use.
  void add_shared_expert(int32_t ffn_width);
  /// The same, of the width that expert_shared_feed_forward_length gives; 0 or missing: none.
  Result<void> load_shared_expert(Metadata& metadata);
  /// Reads attention.temperature_scale and, if there is one, its length from `length_key`.
  Result<void> load_position_scale(Metadata& metadata, std::string_view length_key);
};

/// sqrt(n), 1 / sqrt(n), 1 / n
float root(int32_t n);
float inverse_root(int32_t n);
float inverse(int32_t n);

/// Which layers slide: attention.sliding_window_pattern as one bool per layer, or as a period whose
/// last layer is full (0: all slide); `period` if the key is missing.
Result<std::function<bool(int32_t)>> sliding_pattern(Metadata& metadata, int32_t num_layers,
                                                     uint32_t period);

}  // namespace hearth::models
