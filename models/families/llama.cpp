#include <utility>

#include "models/decoder/decoder.h"
#include "models/families/families.h"

// Llama 1 to 3.x, Mistral, Mixtral, TinyLlama, SmolLM and related models. Layers norm first:
//
//   q, k, v = norm(x) W_qkv; rotate q, k (adjacent pairs); x += attention(q, k, v) W_out
//   gate, up = norm(x) W_gate_up;                        x += (silu(gate) * up) W_down
//
// In Mixtral, the second line is a mixture of experts whose shares sum to 1 (decoder/experts.cpp).
//
// Source: Touvron et al. 2023 (Llama); Dubey et al. 2024 (Llama 3: stored divisors of the
// frequencies); Jiang et al. 2023 (Mistral: the sliding window), 2024 (Mixtral).

namespace hearth::models {

Result<std::unique_ptr<Model>> load_llama(const GgufFile& file, const kernels::OpTable& ops,
                                          const LoadProgressFn& progress,
                                          const LoadOptions& options) {
  Metadata metadata(file, "llama");
  HEARTH_ASSIGN_OR_RETURN(DecoderConfig c, DecoderConfig::load_common(metadata));
  HEARTH_ASSIGN_OR_RETURN(const int32_t window,
                          metadata.small_or("attention.sliding_window", INT32_MAX, 0));
  c.set_window(window, [](int32_t) { return true; });
  HEARTH_ASSIGN_OR_RETURN(const uint32_t experts, metadata.count_or("expert_count", 0));
  if (experts > 0) {
    HEARTH_TRY(c.load_experts(metadata, true));
  }
  HEARTH_TRY(metadata.refuse_others());
  c.pairs = kernels::RopePairs::kNeighbours;
  c.rope_divisors = true;
  return load_decoder<PreNormDecoder>(file, c, ops, progress, options);
}

Result<std::unique_ptr<Model>> load_internlm2(const GgufFile& file, const kernels::OpTable& ops,
                                              const LoadProgressFn& progress,
                                              const LoadOptions& options) {
  Metadata m(file, "internlm2");
  HEARTH_ASSIGN_OR_RETURN(DecoderConfig c, DecoderConfig::load_common(m));
  HEARTH_TRY(m.refuse_others());
  c.pairs = kernels::RopePairs::kNeighbours;
  return load_decoder<PreNormDecoder>(file, c, ops, progress, options);
}

}  // namespace hearth::models
