#include "models/decoder/decoder.h"
#include "models/families/families.h"

// Qwen 2 and 2.5: as Llama, but
//
//   q, k, v = norm(x) W_qkv + b_qkv;  rotate q, k (halves)
//
// Source: Yang et al. 2024 (Qwen2) section 2.2.1; Bai et al. 2023 (Qwen) for the biases.

namespace hearth::models {

Result<std::unique_ptr<Model>> load_qwen2(const GgufFile& file, const kernels::OpTable& ops,
                                          const LoadProgressFn& progress,
                                          const LoadOptions& options) {
  Metadata metadata(file, "qwen2");
  HEARTH_ASSIGN_OR_RETURN(DecoderConfig c, DecoderConfig::load_common(metadata));
  HEARTH_TRY(metadata.refuse_others());
  c.qkv_bias = true;
  return load_decoder<PreNormDecoder>(file, c, ops, progress, options);
}

Result<std::unique_ptr<Model>> load_qwen2moe(const GgufFile& file, const kernels::OpTable& ops,
                                             const LoadProgressFn& progress,
                                             const LoadOptions& options) {
  Metadata m(file, "qwen2moe");
  HEARTH_ASSIGN_OR_RETURN(DecoderConfig c, DecoderConfig::load_common(m));
  HEARTH_TRY(c.load_experts(m, false));
  HEARTH_TRY(c.load_shared_expert(m));
  HEARTH_TRY(m.refuse_others());
  c.qkv_bias = true;
  c.experts.shared_gate = true;
  return load_decoder<PreNormDecoder>(file, c, ops, progress, options);
}

}  // namespace hearth::models
