#include "models/decoder/decoder.h"
#include "models/families/families.h"

// Hunyuan, dense: as Llama, with heads of q and k normed after their rotation; pairs are halves.
//
// Source: Tencent Hunyuan Team 2025 (Hunyuan dense models), published model code.

namespace hearth::models {
Result<std::unique_ptr<Model>> load_hunyuan_dense(const GgufFile& file, const kernels::OpTable& ops,
                                                  const LoadProgressFn& progress,
                                                  const LoadOptions& options) {
  Metadata m(file, "hunyuan-dense");
  HEARTH_ASSIGN_OR_RETURN(DecoderConfig c, DecoderConfig::load_common(m));
  HEARTH_TRY(m.refuse_others());
  c.qk_norm = QkNorm::kHeadsAfterRope;
  return load_decoder<PreNormDecoder>(file, c, ops, progress, options);
}

}  // namespace hearth::models
