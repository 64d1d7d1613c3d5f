#include "models/decoder/decoder.h"
#include "models/families/families.h"

// GLM-4 and GLM-4.5.
//
// GLM-4: part of each head rotates, pairs are neighbours; q, k and v may have biases; norms on both
// sides of each branch:
//   x += norm(attention(norm(x)) W_out);  x += norm((silu(gate) * up) W_down)
//
// GLM-4.5 (glm4moe): pairs are halves; norms before the branches alone; heads of q and k are normed
// in the larger model; after the leading dense layers experts with sigmoid shares, chosen with a
// learned bias, and one that all tokens use. The layer for drafting (nextn) has
// experts, too (decoder/draft_layer.cpp).
//
// Source: GLM Team 2024 (ChatGLM) section 2; GLM Team 2025 (GLM-4.5) section 2.1.

namespace hearth::models {
namespace {

constexpr int32_t kMaxSharedExperts = 64;

}  // namespace
Result<std::unique_ptr<Model>> load_glm4(const GgufFile& file, const kernels::OpTable& ops,
                                         const LoadProgressFn& progress,
                                         const LoadOptions& options) {
  Metadata m(file, "glm4");
  HEARTH_ASSIGN_OR_RETURN(DecoderConfig c, DecoderConfig::load_common(m));
  HEARTH_TRY(m.refuse_others());
  c.pairs = kernels::RopePairs::kNeighbours;
  c.post_norms = true;
  c.fused_gate_up = true;
  return load_decoder<SandwichDecoder>(file, c, ops, progress, options);
}

Result<std::unique_ptr<Model>> load_glm4moe(const GgufFile& file, const kernels::OpTable& ops,
                                            const LoadProgressFn& progress,
                                            const LoadOptions& options) {
  Metadata m(file, "glm4moe");
  HEARTH_ASSIGN_OR_RETURN(DecoderConfig c,
                          DecoderConfig::load_common(m, {.draft_layer = options.draft_layer}));
  c.experts.sigmoid = true;
  HEARTH_TRY(c.load_experts(m, false));
  HEARTH_ASSIGN_OR_RETURN(const int32_t shared,
                          m.small_or("expert_shared_count", kMaxSharedExperts, 0));
  HEARTH_TRY(m.refuse_others());
  c.add_shared_expert(shared * c.experts.ffn_width);
  c.qk_norm = QkNorm::kHeadsIfPresent;
  c.ffn_norm = "post_attention_norm";
  c.experts.selection_bias = true;
  return load_decoder<PreNormDecoder>(file, c, ops, progress, options);
}

}  // namespace hearth::models
