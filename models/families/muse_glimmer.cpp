#include "models/decoder/decoder.h"
#include "models/families/families.h"

// Muse Glimmer's text model. Norms on both sides of each branch; heads of q and k are normed; a
// gate made from attention's input multiplies its output; the embedding's rows are normed:
//
//   x = norm(embed(token))
//   h = norm(x);  x += norm((sigmoid(h W_gate) * attention(h)) W_out)
//   x += norm((silu(gate) * up) W_down),  gate, up = norm(x) W_gate_up
//   logits = soft_cap(norm(x) W_head * logit_scale)
//
// Three layers slide and the fourth is full. Only those that slide use positions; rotated pairs are
// neighbours.
//
// Source: Meta 2026 (Muse Glimmer, its published code); Qiu et al. 2025 (Gated Attention).

namespace hearth::models {

Result<std::unique_ptr<Model>> load_muse_glimmer(const GgufFile& file, const kernels::OpTable& ops,
                                                 const LoadProgressFn& progress,
                                                 const LoadOptions& options) {
  Metadata m(file, "muse-glimmer");
  HEARTH_ASSIGN_OR_RETURN(DecoderConfig c, DecoderConfig::load_common(m));
  HEARTH_ASSIGN_OR_RETURN(const int32_t window, m.number("attention.sliding_window", kMaxContext));
  HEARTH_ASSIGN_OR_RETURN(const auto slides, sliding_pattern(m, c.num_layers, 4));
  HEARTH_ASSIGN_OR_RETURN(c.logit_scale, m.factor("logit_scale", 1e6f));
  HEARTH_ASSIGN_OR_RETURN(c.logit_soft_cap, m.factor_or("final_logit_softcapping", 1e6f, 0));
  RopeConfig& rope = c.ropes.front();
  HEARTH_ASSIGN_OR_RETURN(rope.base, m.factor_or("rope.freq_base_swa", 1e30f, rope.base));
  HEARTH_TRY(m.refuse_others());
  c.pairs = kernels::RopePairs::kNeighbours;
  c.post_norms = true;
  c.post_eps = 1e-8f;
  c.qk_norm = QkNorm::kHeads;
  c.embedding_norm = true;
  c.attention_gate = true;
  c.set_window(window, slides);
  c.rotate_only(slides);
  return load_decoder<SandwichDecoder>(file, c, ops, progress, options);
}

}  // namespace hearth::models
