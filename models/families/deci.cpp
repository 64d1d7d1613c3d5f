#include "models/decoder/decoder.h"
#include "models/families/families.h"

// Llamas pruned layer by layer: DeciLM, Llama Nemotron Super (49B, 51B) and Ultra (253B). Layers
// differ in their numbers of KV heads and in the width of their feed-forward. A layer may have
//
//   x += norm(x) W_out             in place of attention: heads, but no KV heads
//   no attention                   no heads
//   no feed-forward                a width of 0
//
// and in Ultra, where neighbouring feed-forwards were joined into one, neither of both.
//
// Source: Bercovich et al. 2024 (Puzzle), 2025 (FFN Fusion).

namespace hearth::models {

Result<std::unique_ptr<Model>> load_deci(const GgufFile& file, const kernels::OpTable& ops,
                                         const LoadProgressFn& progress,
                                         const LoadOptions& options) {
  Metadata m(file, "deci");
  HEARTH_ASSIGN_OR_RETURN(DecoderConfig c, DecoderConfig::load_common(m, {.pruned = true}));
  HEARTH_TRY(m.refuse_others());
  c.pairs = kernels::RopePairs::kNeighbours;
  c.rope_divisors = true;
  return load_decoder<PreNormDecoder>(file, c, ops, progress, options);
}

}  // namespace hearth::models
