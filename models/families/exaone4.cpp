#include "models/decoder/decoder.h"
#include "models/families/families.h"

// EXAONE 4: norms after each branch alone, heads of q and k normed:
//
//   x += norm(attention(x) W_out);  x += norm((silu(gate) * up) W_down)
//
// With a window (the larger model) three layers slide and the fourth is full, and only those that
// slide use positions.
//
// Source: LG AI Research 2025 (EXAONE 4.0) section 2.1.

namespace hearth::models {
Result<std::unique_ptr<Model>> load_exaone4(const GgufFile& file, const kernels::OpTable& ops,
                                            const LoadProgressFn& progress,
                                            const LoadOptions& options) {
  Metadata m(file, "exaone4");
  HEARTH_ASSIGN_OR_RETURN(DecoderConfig c, DecoderConfig::load_common(m));
  HEARTH_ASSIGN_OR_RETURN(const int32_t window,
                          m.small_or("attention.sliding_window", kMaxContext, 0));
  HEARTH_ASSIGN_OR_RETURN(const auto slides, sliding_pattern(m, c.num_layers, 4));
  HEARTH_TRY(m.refuse_others());
  c.pre_norms = false;
  c.post_norms = true;
  c.qk_norm = QkNorm::kHeads;
  c.rope_divisors = true;
  if (window > 0) {
    c.set_window(window, slides);
    c.rotate_only(slides);
  }
  return load_decoder<PostNormDecoder>(file, c, ops, progress, options);
}

}  // namespace hearth::models
