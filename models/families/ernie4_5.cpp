#include <fmt/core.h>

#include "models/decoder/decoder.h"
#include "models/families/families.h"

// ERNIE 4.5: as Llama (rotated pairs are neighbours). With experts (ernie4_5-moe): after the
// leading dense layers, shares are a softmax, experts are chosen with a learned bias, the chosen
// shares sum to 1, and one more expert serves all tokens.
//
// Source: Baidu 2025 (ERNIE 4.5 technical report) section 2.

namespace hearth::models {
Result<std::unique_ptr<Model>> load_ernie4_5(const GgufFile& file, const kernels::OpTable& ops,
                                             const LoadProgressFn& progress,
                                             const LoadOptions& options) {
  Metadata m(file, "ernie4_5");
  HEARTH_ASSIGN_OR_RETURN(DecoderConfig c, DecoderConfig::load_common(m));
  HEARTH_TRY(m.refuse_others());
  c.pairs = kernels::RopePairs::kNeighbours;
  return load_decoder<PreNormDecoder>(file, c, ops, progress, options);
}

Result<std::unique_ptr<Model>> load_ernie4_5_moe(const GgufFile& file, const kernels::OpTable& ops,
                                                 const LoadProgressFn& progress,
                                                 const LoadOptions& options) {
  Metadata m(file, "ernie4_5-moe");
  HEARTH_ASSIGN_OR_RETURN(DecoderConfig c, DecoderConfig::load_common(m));
  HEARTH_TRY(c.load_experts(m, true));
  HEARTH_ASSIGN_OR_RETURN(const int32_t step,
                          m.number_or("interleave_moe_layer_step", kMaxLayers, 1));
  if (step != 1) return m.unsupported("interleave_moe_layer_step", fmt::format("{}", step));
  HEARTH_TRY(c.load_shared_expert(m));
  HEARTH_TRY(m.refuse_others());
  c.pairs = kernels::RopePairs::kNeighbours;
  return load_decoder<PreNormDecoder>(file, c, ops, progress, options);
}

}  // namespace hearth::models
