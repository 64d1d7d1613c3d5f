#include "models/decoder/decoder.h"
#include "models/families/families.h"

// Granite 3: as Llama, with four scales instead of none:
//
//   x = embed(token) * embedding_scale;  scores = attention.scale * q.k
//   x += residual_scale * attention(norm(x)) W_out
//   x += residual_scale * (silu(gate) * up) W_down
//   logits = norm(x) W_head / logit_scale
//
// Granite MoE has a feed-forward of experts whose shares sum to 1 (decoder/experts.cpp), and may
// have one more expert that all tokens use. In Granite 4 hybrids most layers are Mamba-2 in place
// of attention (decoder/recurrent.cpp); their feed-forward may have experts, too.
//
// Source: IBM 2025 (Granite 4.0), the published code; Granite Team 2024 (Granite 3.0) section 3;
// Yang et al. 2022 (scales that transfer to other widths).

namespace hearth::models {
namespace {

constexpr float kMaxScale = 1e6f;

Result<DecoderConfig> load_granite_config(Metadata& m, const CommonKeys& keys = {}) {
  HEARTH_ASSIGN_OR_RETURN(DecoderConfig c, DecoderConfig::load_common(m, keys));
  HEARTH_ASSIGN_OR_RETURN(c.embedding_scale, m.factor_or("embedding_scale", kMaxScale, 1));
  HEARTH_ASSIGN_OR_RETURN(c.residual_scale, m.factor_or("residual_scale", kMaxScale, 1));
  HEARTH_ASSIGN_OR_RETURN(c.attention_scale,
                          m.factor_or("attention.scale", kMaxScale, c.attention_scale));
  HEARTH_ASSIGN_OR_RETURN(const float divisor, m.factor("logit_scale", kMaxScale));
  c.logit_scale = 1.0f / divisor;
  // In Granite 4 this flag, if false, means that no layer uses positions.
  HEARTH_ASSIGN_OR_RETURN(const bool rotated, m.flag_or("rope.scaling.finetuned", true));
  if (!rotated) {
    for (LayerSpec& layer : c.layers) layer.rope = kNoRope;
  }
  c.pairs = kernels::RopePairs::kNeighbours;
  c.rope_divisors = true;
  return c;
}

}  // namespace

Result<std::unique_ptr<Model>> load_granite(const GgufFile& file, const kernels::OpTable& ops,
                                            const LoadProgressFn& progress,
                                            const LoadOptions& options) {
  Metadata m(file, "granite");
  HEARTH_ASSIGN_OR_RETURN(const DecoderConfig c, load_granite_config(m));
  HEARTH_TRY(m.refuse_others());
  return load_decoder<PreNormDecoder>(file, c, ops, progress, options);
}

Result<std::unique_ptr<Model>> load_granitemoe(const GgufFile& file, const kernels::OpTable& ops,
                                               const LoadProgressFn& progress,
                                               const LoadOptions& options) {
  Metadata m(file, "granitemoe");
  HEARTH_ASSIGN_OR_RETURN(DecoderConfig c, load_granite_config(m));
  HEARTH_TRY(c.load_experts(m, true));
  HEARTH_TRY(c.load_shared_expert(m));
  HEARTH_TRY(m.refuse_others());
  return load_decoder<PreNormDecoder>(file, c, ops, progress, options);
}

Result<std::unique_ptr<Model>> load_granitehybrid(const GgufFile& file, const kernels::OpTable& ops,
                                                  const LoadProgressFn& progress,
                                                  const LoadOptions& options) {
  Metadata m(file, "granitehybrid");
  HEARTH_ASSIGN_OR_RETURN(DecoderConfig c, load_granite_config(m, {.hybrid = true}));
  HEARTH_ASSIGN_OR_RETURN(RecurrentConfig sizes, RecurrentConfig::load_mamba2(m));
  sizes.norm = true;
  c.set_recurrent(sizes);
  HEARTH_ASSIGN_OR_RETURN(const uint32_t experts, m.count_or("expert_count", 0));
  m.know({"expert_used_count", "expert_shared_feed_forward_length"});
  if (experts > 0) {
    HEARTH_TRY(c.load_experts(m, true));
    HEARTH_TRY(c.load_shared_expert(m));
  }
  HEARTH_TRY(m.refuse_others());
  return load_decoder<PreNormDecoder>(file, c, ops, progress, options);
}

}  // namespace hearth::models
