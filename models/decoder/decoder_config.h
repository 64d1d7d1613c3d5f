#pragma once
// The sizes and parameters of a decoder, read from a file's metadata and checked, and the common
// parts that its family uses.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/base/result.h"
#include "kernels/ops.h"
#include "models/decoder/metadata.h"
#include "models/model.h"
#include "models/rope_frequencies.h"

namespace hearth::models {

/// The norms between the projections and the rotation.
enum class QkNorm {
  kNone,
  kHeads,  ///< each head of q and of k is normed separately
  kWidth,  ///< q and k are normed over all heads together
};

/// How one layer differs from its neighbours.
struct LayerSpec {
  int32_t group = 0;  ///< of ModelInfo::groups
  int32_t index = 0;  ///< among the layers of that group
  int32_t rope = 0;   ///< of DecoderConfig::ropes; kNoRope: this layer does not use positions
};
inline constexpr int32_t kNoRope = -1;

/// A mixture of experts: a feed-forward of which each token uses a few parts.
struct ExpertConfig {
  int32_t count = 0;  ///< 0: no experts
  int32_t used = 0;   ///< per token; 1 to count
  int32_t ffn_width = 0;
  bool normalize = false;        ///< the shares of the used experts sum to 1
  float scale = 1;               ///< of the experts' sum
  int32_t shared_ffn_width = 0;  ///< of the expert that every token uses in addition; 0: none
};

struct DecoderConfig {
  std::string architecture;
  int32_t context_length = 0;
  int32_t width = 0;
  int32_t num_layers = 0;
  int32_t ffn_width = 0;
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;  ///< divides num_heads
  int32_t head_dim = 0;
  float rms_eps = 0;

  std::vector<RopeConfig> ropes;   ///< one, or two: of full layers and of sliding layers
  std::vector<LayerGroup> groups;  ///< at least one
  std::vector<LayerSpec> layers;   ///< num_layers

  ExpertConfig experts;

  // ---- Set by the family: which parts it uses ----
  kernels::RopePairs pairs = kernels::RopePairs::kHalves;
  kernels::Activation activation = kernels::Activation::kSilu;
  QkNorm qk_norm = QkNorm::kNone;
  bool pre_norms = true;         ///< attn_norm and ffn_norm
  bool post_norms = false;       ///< post_attention_norm and post_ffw_norm
  bool qkv_bias = false;         ///< required; optional in other families
  bool fused_gate_up = false;    ///< ffn_up holds gate and up
  bool rope_divisors = false;    ///< rope_freqs.weight is allowed
  bool long_rope = false;        ///< rope_factors_long.weight and _short are allowed
  float embedding_scale = 1;     ///< of the embedding's rows
  float attention_scale = 0;     ///< of q.k; load_common sets 1 / sqrt(head_dim)
  float attention_soft_cap = 0;  ///< 0: none
  float residual_scale = 1;      ///< of what attention and feed-forward add
  float logit_scale = 1;         ///< of the logits
  float logit_soft_cap = 0;      ///< 0: none

  int64_t q_width() const { return int64_t{num_heads} * head_dim; }
  int64_t kv_width() const { return int64_t{num_kv_heads} * head_dim; }
  /// Width of the feed-forward that all tokens use; 0: there is none.
  int32_t dense_ffn_width() const {
    return experts.count > 0 ? experts.shared_ffn_width : ffn_width;
  }
  /// Whether a branch is computed completely before it is added to the residual stream.
  bool has_branch() const { return post_norms || residual_scale != 1; }

  /// Reads the keys that all families have: sizes, epsilon, one rope, one full group with all
  /// layers.
  static Result<DecoderConfig> load_common(Metadata& metadata);
  /// Puts the layers for which `slides` is true into a group of that window and the rest into a
  /// full group. A window that covers the context is ignored.
  void set_window(int32_t window, const std::function<bool(int32_t layer)>& slides);
  /// Whether the layer belongs to a sliding group.
  bool is_sliding(int32_t layer) const;
};

/// Reads expert_count and the keys of experts; `normalize` is the default if the file does not set
/// it.
Result<ExpertConfig> load_experts(Metadata& metadata, const DecoderConfig& config, bool normalize);

/// Which layers slide: attention.sliding_window_pattern as one bool per layer, or as a period whose
/// last layer is full (0: all slide); `period` if the key is missing.
Result<std::function<bool(int32_t)>> sliding_pattern(Metadata& metadata, int32_t num_layers,
                                                     uint32_t period);

}  // namespace hearth::models
