#include "models/decoder/decoder.h"
#include "models/families/families.h"

// SmolLM 3: as Llama, but every fourth layer does not rotate, so it attends by content alone.
//
// Source: Yang et al. 2025 (Rope to Nope and back again); Kazemnejad et al. 2023 (no positional
// encoding).

namespace hearth::models {
namespace {

constexpr size_t kPeriod = 4;  // not in the metadata

}  // namespace

Result<std::unique_ptr<Model>> load_smollm3(const GgufFile& file, const kernels::OpTable& ops,
                                            const LoadProgressFn& progress,
                                            const LoadOptions& options) {
  Metadata m(file, "smollm3");
  HEARTH_ASSIGN_OR_RETURN(DecoderConfig c, DecoderConfig::load_common(m));
  HEARTH_TRY(m.refuse_others());
  c.pairs = kernels::RopePairs::kNeighbours;
  for (size_t i = kPeriod - 1; i < c.layers.size(); i += kPeriod) c.layers[i].rope = kNoRope;
  return load_decoder<PreNormDecoder>(file, c, ops, progress, options);
}

}  // namespace hearth::models
