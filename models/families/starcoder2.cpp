#include "models/decoder/decoder.h"
#include "models/families/families.h"

// StarCoder 2: layer norms and all products have biases, the feed-forward has no gate:
//
//   x += attention(norm(x)) W_out + b_out
//   x += gelu(norm(x) W_up + b_up) W_down + b_down
//
// gelu is the tanh approximation; rotated pairs are halves.
//
// Source: Lozhkov et al. 2024 (StarCoder 2).

namespace hearth::models {

Result<std::unique_ptr<Model>> load_starcoder2(const GgufFile& file, const kernels::OpTable& ops,
                                               const LoadProgressFn& progress,
                                               const LoadOptions& options) {
  Metadata m(file, "starcoder2");
  HEARTH_ASSIGN_OR_RETURN(DecoderConfig c, DecoderConfig::load_common(m, {.norm = Norm::kLayer}));
  HEARTH_ASSIGN_OR_RETURN(const int32_t window,
                          m.small_or("attention.sliding_window", kMaxContext, 0));
  HEARTH_TRY(m.refuse_others());
  if (window > 0) c.set_window(window, [](int32_t) { return true; });
  c.qkv_bias = true;
  c.out_bias = true;
  c.ffn_bias = true;
  c.gated_ffn = false;
  return load_decoder<PreNormDecoder>(file, c, ops, progress, options);
}

}  // namespace hearth::models
