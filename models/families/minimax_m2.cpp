#include "models/decoder/decoder.h"
#include "models/families/families.h"

// MiniMax M2: part of each head rotates (halves), q and k are normed over all heads together; in
// every layer experts with sigmoid shares, chosen with a learned bias.
//
// Source: MiniMax 2025 (MiniMax-M2), published model code.

namespace hearth::models {
Result<std::unique_ptr<Model>> load_minimax_m2(const GgufFile& file, const kernels::OpTable& ops,
                                               const LoadProgressFn& progress,
                                               const LoadOptions& options) {
  Metadata m(file, "minimax-m2");
  HEARTH_ASSIGN_OR_RETURN(DecoderConfig c, DecoderConfig::load_common(m));
  c.experts.sigmoid = true;
  HEARTH_TRY(c.load_experts(m, true));
  HEARTH_TRY(m.refuse_others());
  c.qk_norm = QkNorm::kWidth;
  c.experts.selection_bias = true;
  return load_decoder<PreNormDecoder>(file, c, ops, progress, options);
}

}  // namespace hearth::models
