#include "models/decoder/decoder.h"
#include "models/families/families.h"

// OLMoE: layers norm first, q and k are normed over all their heads together, and the feed-forward
// is a mixture of experts. Shares are taken from the softmax over all experts, so those of the used
// ones do not sum to 1:
//
//   q, k, v = norm(x) W_qkv;  q = norm(q), k = norm(k);  rotate q, k (halves)
//   x += attention(q, k, v) W_out;  x += experts(norm(x))
//
// Source: Muennighoff et al. 2024 (OLMoE) section 2 and appendix B.

namespace hearth::models {

Result<std::unique_ptr<Model>> load_olmoe(const GgufFile& file, const kernels::OpTable& ops,
                                          const LoadProgressFn& progress,
                                          const LoadOptions& options) {
  Metadata m(file, "olmoe");
  HEARTH_ASSIGN_OR_RETURN(DecoderConfig c, DecoderConfig::load_common(m));
  HEARTH_TRY(c.load_experts(m, false));
  HEARTH_TRY(m.refuse_others());
  c.qk_norm = QkNorm::kWidth;
  return load_decoder<PreNormDecoder>(file, c, ops, progress, options);
}

}  // namespace hearth::models
