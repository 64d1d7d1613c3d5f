#include "models/decoder/decoder.h"
#include "models/families/families.h"

// Dream 7B: Qwen 2.5, but every token attends to the whole sequence. It was trained from that model
// and keeps its shift: the logits of a masked token are those of the row before it.
//
// Source: Ye et al. 2025 (Dream), its published generation_utils.py, and for the defaults the
// example published with it.

namespace hearth::models {

Result<std::unique_ptr<Model>> load_dream(const GgufFile& file, const kernels::OpTable& ops,
                                          const LoadProgressFn& progress,
                                          const LoadOptions& options) {
  Metadata m(file, "dream");
  HEARTH_ASSIGN_OR_RETURN(DecoderConfig c, DecoderConfig::load_common(m));
  HEARTH_TRY(c.attend_to_all(m, {.shift_logits = true,
                                 .by_time = true,
                                 .tempered = true,
                                 .remasking = Remasking::kEntropy,
                                 .temperature = 0.2f,
                                 .top_p = 0.95f}));
  HEARTH_TRY(m.refuse_others());
  c.qkv_bias = true;
  return load_decoder<PreNormDecoder>(file, c, ops, progress, options);
}

}  // namespace hearth::models
