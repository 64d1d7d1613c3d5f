#include <utility>
#include <vector>

#include "models/decoder/decoder.h"
#include "models/families/families.h"

// Nemotron-H and Nemotron 3: each layer has one part, which is Mamba-2, attention without
// positions, or a feed-forward without gates.
//
//   x += mamba2(norm(x)), or attention(norm(x)) W_out, or relu(norm(x) W_up)^2 W_down
//   (decoder/recurrent.cpp)
//
// Nemotron-H MoE has experts in place of the feed-forward, chosen by sigmoids with a learned bias,
// and one that all tokens use.
//
// Source: NVIDIA 2025 (Nemotron-H) section 2; 2025 (Nemotron 3 Nano), the published code.

namespace hearth::models {
namespace {

Result<DecoderConfig> load_nemotron(Metadata& m) {
  HEARTH_ASSIGN_OR_RETURN(DecoderConfig c, DecoderConfig::load_common(m, {.hybrid = true}));
  HEARTH_ASSIGN_OR_RETURN(RecurrentConfig sizes, RecurrentConfig::load_mamba2(m));
  m.know({"attention.layer_norm_epsilon"});  // of the layers for drafting
  sizes.norm = true;
  for (LayerSpec& layer : c.layers) layer.linear = false;
  c.set_recurrent(
      sizes, [&c](int32_t i) { return c.layers[i].num_heads == 0 && c.layers[i].ffn_width == 0; });
  c.rotate_only([](int32_t) { return false; });
  c.ffn_norm = "attn_norm";
  c.gated_ffn = false;
  c.relu_squared = true;
  return c;
}

}  // namespace

Result<std::unique_ptr<Model>> load_nemotron_h(const GgufFile& file, const kernels::OpTable& ops,
                                               const LoadProgressFn& progress,
                                               const LoadOptions& options) {
  Metadata m(file, "nemotron_h");
  HEARTH_ASSIGN_OR_RETURN(const DecoderConfig c, load_nemotron(m));
  HEARTH_TRY(m.refuse_others());
  return load_decoder<PreNormDecoder>(file, c, ops, progress, options);
}

Result<std::unique_ptr<Model>> load_nemotron_h_moe(const GgufFile& file,
                                                   const kernels::OpTable& ops,
                                                   const LoadProgressFn& progress,
                                                   const LoadOptions& options) {
  Metadata m(file, "nemotron_h_moe");
  HEARTH_ASSIGN_OR_RETURN(DecoderConfig c, load_nemotron(m));
  const std::vector<LayerSpec> plain = c.layers;
  c.experts.sigmoid = true;
  c.experts.selection_bias = true;
  HEARTH_TRY(c.load_experts(m, true));
  HEARTH_TRY(c.load_shared_expert(m));
  for (int32_t i = 0; i < c.num_layers; ++i) {
    if (plain[i].ffn_width == 0) c.layers[i] = plain[i];
  }
  m.know({"expert_shared_count"});  // its width is that of all together
  for (const std::string_view key : {"expert_group_count", "expert_group_used_count"}) {
    HEARTH_ASSIGN_OR_RETURN(const uint32_t groups, m.count_or(key, 1));
    if (groups > 1) return m.unsupported(key, "groups of experts");
  }
  HEARTH_TRY(m.refuse_others());
  return load_decoder<PreNormDecoder>(file, c, ops, progress, options);
}

}  // namespace hearth::models
