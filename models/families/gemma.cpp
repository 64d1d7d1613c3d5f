#include "models/decoder/decoder.h"
#include "models/families/families.h"

// Gemma 1, 2 and 3.
//
//   x = embed(token) * sqrt(width)
//   Gemma 1, layers norm first:  x += attention(norm(x)) W_out
//                                x += (gelu(gate) * up) W_down,  gate, up = norm(x) W_gate_up
//   Gemma 2 and 3 norm each branch's output as well:
//                                x += norm(attention(norm(x)) W_out)
//                                x += norm((gelu(gate) * up) W_down)
//
// gelu is the tanh approximation; rotated pairs are halves. Norm weights are stored with 1 added.
// Gemma 2: scores and logits are soft capped; every second layer slides, starting with the first.
// Gemma 3: no caps; heads of q and k are normed; five layers slide, the sixth is full. Sliding
// layers rotate with base 10000, full ones with rope.freq_base and, in files for long contexts, at
// positions divided by rope.scaling.factor.
//
// Source: Gemma Team 2024 (Gemma), 2024 (Gemma 2) section 2, 2025 (Gemma 3) section 2.

namespace hearth::models {
namespace {

constexpr float kMaxCap = 1e6f;

Result<DecoderConfig> load_gemma_config(Metadata& m) {
  HEARTH_ASSIGN_OR_RETURN(DecoderConfig c, DecoderConfig::load_common(m));
  c.activation = kernels::Activation::kGeluTanh;
  c.embedding_scale = root(c.width);
  return c;
}

/// The largest models of both generations scale scores by the width per head instead of the head's
/// size. Metadata does not record this, so they are recognized by their number of layers.
void scale_by_width(DecoderConfig& c, int32_t layers_of_largest) {
  if (c.num_layers != layers_of_largest) return;
  c.attention_scale = inverse_root(c.width / c.layers.front().num_heads);
}

}  // namespace

Result<std::unique_ptr<Model>> load_gemma(const GgufFile& file, const kernels::OpTable& ops,
                                          const LoadProgressFn& progress,
                                          const LoadOptions& options) {
  Metadata m(file, "gemma");
  HEARTH_ASSIGN_OR_RETURN(const DecoderConfig c, load_gemma_config(m));
  HEARTH_TRY(m.refuse_others());
  return load_decoder<PreNormDecoder>(file, c, ops, progress, options);
}

Result<std::unique_ptr<Model>> load_gemma2(const GgufFile& file, const kernels::OpTable& ops,
                                           const LoadProgressFn& progress,
                                           const LoadOptions& options) {
  Metadata m(file, "gemma2");
  HEARTH_ASSIGN_OR_RETURN(DecoderConfig c, load_gemma_config(m));
  HEARTH_ASSIGN_OR_RETURN(const int32_t window,
                          m.number_or("attention.sliding_window", kMaxContext, 4096));
  HEARTH_ASSIGN_OR_RETURN(const auto slides, sliding_pattern(m, c.num_layers, 2));
  HEARTH_ASSIGN_OR_RETURN(c.attention_soft_cap, m.factor_or("attn_logit_softcapping", kMaxCap, 50));
  HEARTH_ASSIGN_OR_RETURN(c.logit_soft_cap, m.factor_or("final_logit_softcapping", kMaxCap, 30));
  HEARTH_TRY(m.refuse_others());
  c.post_norms = true;
  c.set_window(window, slides);
  scale_by_width(c, 46);
  return load_decoder<SandwichDecoder>(file, c, ops, progress, options);
}

Result<std::unique_ptr<Model>> load_gemma3(const GgufFile& file, const kernels::OpTable& ops,
                                           const LoadProgressFn& progress,
                                           const LoadOptions& options) {
  Metadata m(file, "gemma3");
  HEARTH_ASSIGN_OR_RETURN(DecoderConfig c, load_gemma_config(m));
  HEARTH_ASSIGN_OR_RETURN(const int32_t window, m.number("attention.sliding_window", kMaxContext));
  HEARTH_ASSIGN_OR_RETURN(const auto slides, sliding_pattern(m, c.num_layers, 6));
  HEARTH_ASSIGN_OR_RETURN(c.logit_soft_cap, m.factor_or("final_logit_softcapping", kMaxCap, 0));
  HEARTH_TRY(c.load_sliding_rope(m, slides, c.ropes.front().dim));
  HEARTH_TRY(m.refuse_others());
  c.post_norms = true;
  c.qk_norm = QkNorm::kHeads;
  c.set_window(window, slides);
  scale_by_width(c, 62);
  return load_decoder<SandwichDecoder>(file, c, ops, progress, options);
}

}  // namespace hearth::models
