#include <utility>

#include "models/decoder/decoder.h"
#include "models/families/families.h"

// Phi 3, 3.5 and 4: as Llama, with q, k, v stored as one matrix and gate, up as another. Rotated
// pairs are halves of the head, in Phi 4 mini of a part of it. Files for long contexts have two
// sets of LongRoPE divisors: the short ones apply if the configured context is at most the original
// training context, else the long ones. The choice is made once per load, so a cached key never
// changes.
//
// Source: Abdin et al. 2024 (Phi-3) section 2; Ding et al. 2024 (LongRoPE) section 3.

namespace hearth::models {

Result<std::unique_ptr<Model>> load_phi3(const GgufFile& file, const kernels::OpTable& ops,
                                         const LoadProgressFn& progress,
                                         const LoadOptions& options) {
  Metadata m(file, "phi3");
  HEARTH_ASSIGN_OR_RETURN(DecoderConfig c, DecoderConfig::load_common(m));
  HEARTH_ASSIGN_OR_RETURN(const int32_t window,
                          m.small_or("attention.sliding_window", INT32_MAX, 0));
  c.set_window(window, [](int32_t) { return true; });
  HEARTH_TRY(m.refuse_others());
  c.fused_qkv = true;
  c.fused_gate_up = true;
  c.long_rope = true;
  return load_decoder<PreNormDecoder>(file, c, ops, progress, options);
}

}  // namespace hearth::models
