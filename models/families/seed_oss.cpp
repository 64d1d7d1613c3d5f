#include "models/decoder/decoder.h"
#include "models/families/families.h"

// Seed-OSS: as Llama, with biases on q, k and v; rotated pairs are halves.
//
// Source: ByteDance Seed 2025 (Seed-OSS), published model code.

namespace hearth::models {
Result<std::unique_ptr<Model>> load_seed_oss(const GgufFile& file, const kernels::OpTable& ops,
                                             const LoadProgressFn& progress,
                                             const LoadOptions& options) {
  Metadata m(file, "seed_oss");
  HEARTH_ASSIGN_OR_RETURN(DecoderConfig c, DecoderConfig::load_common(m));
  HEARTH_TRY(m.refuse_others());
  c.qkv_bias = true;
  c.ffn_norm = "post_attention_norm";
  return load_decoder<PreNormDecoder>(file, c, ops, progress, options);
}

}  // namespace hearth::models
