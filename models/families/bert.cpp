#include "models/encoder/encoder.h"
#include "models/families/families.h"

// BERT and the embedding models derived from it: positions are learned rows, the feed-forward is
//
//   gelu(x W_up + b_up) W_down + b_down        (gelu by erf)
//
// Source: Devlin et al. 2018.
//
// Nomic's models instead rotate q and k (halves), and the feed-forward is
//
//   (silu(x W_gate) * x W_up) W_down
//
// Source: Nussbaum et al. 2024 (Nomic Embed), section 3.

namespace hearth::models {

Result<std::unique_ptr<Model>> load_bert(const GgufFile& file, const kernels::OpTable& ops,
                                         const LoadProgressFn& progress, const LoadOptions&) {
  Metadata metadata(file, "bert");
  HEARTH_ASSIGN_OR_RETURN(const EncoderConfig c, EncoderConfig::load_common(metadata));
  HEARTH_TRY(metadata.refuse_others());
  return Encoder::load(file, c, ops, progress);
}

Result<std::unique_ptr<Model>> load_nomic_bert(const GgufFile& file, const kernels::OpTable& ops,
                                               const LoadProgressFn& progress, const LoadOptions&) {
  Metadata metadata(file, "nomic-bert");
  HEARTH_ASSIGN_OR_RETURN(EncoderConfig c, EncoderConfig::load_common(metadata));
  HEARTH_ASSIGN_OR_RETURN(c.rope, RopeConfig::load(file, c.architecture, c.head_dim));
  metadata.know({"rope.dimension_count", "rope.freq_base", "rope.scale_linear", "rope.scaling.type",
                 "rope.scaling.factor", "rope.scaling.original_context_length",
                 "rope.scaling.attn_factor", "rope.scaling.yarn_beta_fast",
                 "rope.scaling.yarn_beta_slow"});
  HEARTH_TRY(metadata.refuse_others());
  c.gated = true;
  return Encoder::load(file, c, ops, progress);
}

}  // namespace hearth::models
