#include "models/decoder/decoder.h"
#include "models/families/families.h"

// LLaDA 8B: the layers of Llama, but every token attends to the whole sequence, and the logits of a
// masked token are those of its own row. LLaDA MoE: the layers of OLMoE, with norms of each head of
// q and k:
//
//   q, k, v = norm(x) W_qkv;  q = norm_head(q), k = norm_head(k);  rotate q, k (halves)
//   x += attention_to_all(q, k, v) W_out;  x += experts(norm(x))
//
// Source: Nie et al. 2025 (LLaDA) section 2 and appendix B.2, and its published generate.py and
// chat.py for the passes and the blocks of 32; inclusionAI 2025 (LLaDA-MoE).

namespace hearth::models {
namespace {

/// As in the published chat.py.
constexpr CanvasModel kUsual = {.block_length = 32};

}  // namespace

Result<std::unique_ptr<Model>> load_llada(const GgufFile& file, const kernels::OpTable& ops,
                                          const LoadProgressFn& progress,
                                          const LoadOptions& options) {
  Metadata m(file, "llada");
  HEARTH_ASSIGN_OR_RETURN(DecoderConfig c, DecoderConfig::load_common(m));
  HEARTH_TRY(c.attend_to_all(m, kUsual));
  HEARTH_TRY(m.refuse_others());
  c.pairs = kernels::RopePairs::kNeighbours;
  return load_decoder<PreNormDecoder>(file, c, ops, progress, options);
}

Result<std::unique_ptr<Model>> load_llada_moe(const GgufFile& file, const kernels::OpTable& ops,
                                              const LoadProgressFn& progress,
                                              const LoadOptions& options) {
  Metadata m(file, "llada-moe");
  HEARTH_ASSIGN_OR_RETURN(DecoderConfig c, DecoderConfig::load_common(m));
  HEARTH_TRY(c.load_experts(m, false));
  HEARTH_TRY(c.attend_to_all(m, kUsual));
  HEARTH_TRY(m.refuse_others());
  c.qk_norm = QkNorm::kHeads;
  return load_decoder<PreNormDecoder>(file, c, ops, progress, options);
}

}  // namespace hearth::models
