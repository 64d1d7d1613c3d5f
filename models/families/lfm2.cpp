#include "models/decoder/decoder.h"
#include "models/families/families.h"

// LFM2: short gated convolutions, and some layers of attention whose heads of q and k are normed.
//
//   x += short_conv(norm(x)), or attention(norm(x)) W_out (decoder/recurrent.cpp)
//   x += (silu(gate) * up) W_down;  rotated pairs are halves
//
// LFM2 MoE has experts after its leading layers, chosen by sigmoids with a learned bias.
//
// Source: Liquid AI 2025 (LFM2 technical report) section 2.

namespace hearth::models {
namespace {

Result<DecoderConfig> load_lfm2_config(Metadata& m) {
  HEARTH_ASSIGN_OR_RETURN(DecoderConfig c, DecoderConfig::load_common(m, {.hybrid = true}));
  HEARTH_ASSIGN_OR_RETURN(const RecurrentConfig sizes,
                          RecurrentConfig::load_short_conv(m, c.width));
  c.set_recurrent(sizes);
  c.qk_norm = QkNorm::kHeads;
  c.output_norm = "token_embd_norm";
  return c;
}

}  // namespace

Result<std::unique_ptr<Model>> load_lfm2(const GgufFile& file, const kernels::OpTable& ops,
                                         const LoadProgressFn& progress,
                                         const LoadOptions& options) {
  Metadata m(file, "lfm2");
  HEARTH_ASSIGN_OR_RETURN(const DecoderConfig c, load_lfm2_config(m));
  HEARTH_TRY(m.refuse_others());
  return load_decoder<PreNormDecoder>(file, c, ops, progress, options);
}

Result<std::unique_ptr<Model>> load_lfm2moe(const GgufFile& file, const kernels::OpTable& ops,
                                            const LoadProgressFn& progress,
                                            const LoadOptions& options) {
  Metadata m(file, "lfm2moe");
  HEARTH_ASSIGN_OR_RETURN(DecoderConfig c, load_lfm2_config(m));
  c.experts.sigmoid = true;
  c.experts.selection_bias = true;
  HEARTH_TRY(c.load_experts(m, true));
  HEARTH_TRY(m.refuse_others());
  return load_decoder<PreNormDecoder>(file, c, ops, progress, options);
}

}  // namespace hearth::models
