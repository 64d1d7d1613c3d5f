#include "models/decoder/decoder.h"
#include "models/families/families.h"

// Qwen 3: as Qwen 2 without biases, but each head of q and of k is normed before it is rotated:
//
//   q, k, v = norm(x) W_qkv;  q = norm_head(q), k = norm_head(k);  rotate q, k (halves)
//
// Qwen 3 MoE has a feed-forward of experts whose shares sum to 1 (decoder/experts.cpp).
//
// Source: Yang et al. 2025 (Qwen3) section 2; Dehghani et al. 2023 (norms of queries and keys).

namespace hearth::models {

Result<std::unique_ptr<Model>> load_qwen3(const GgufFile& file, const kernels::OpTable& ops,
                                          const LoadProgressFn& progress,
                                          const LoadOptions& options) {
  Metadata metadata(file, "qwen3");
  HEARTH_ASSIGN_OR_RETURN(DecoderConfig c, DecoderConfig::load_common(metadata));
  HEARTH_TRY(metadata.refuse_others());
  c.qk_norm = QkNorm::kHeads;
  return load_decoder<PreNormDecoder>(file, c, ops, progress, options);
}

Result<std::unique_ptr<Model>> load_qwen3moe(const GgufFile& file, const kernels::OpTable& ops,
                                             const LoadProgressFn& progress,
                                             const LoadOptions& options) {
  Metadata metadata(file, "qwen3moe");
  HEARTH_ASSIGN_OR_RETURN(DecoderConfig c, DecoderConfig::load_common(metadata));
  HEARTH_TRY(c.load_experts(metadata, true));
  HEARTH_TRY(metadata.refuse_others());
  c.qk_norm = QkNorm::kHeads;
  return load_decoder<PreNormDecoder>(file, c, ops, progress, options);
}

}  // namespace hearth::models
