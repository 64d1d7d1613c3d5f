#include "models/decoder/decoder.h"
#include "models/families/families.h"

// MiniMax-01 (Text-01, M1): most layers are lightning attention (decoder/recurrent.cpp), every
// eighth is attention of which part of each head rotates (halves). The normed row takes the
// residual stream's place:
//
//   h = norm(x);  x = a h + lightning(h), or a h + attention(h) W_out;  a = residual_scale
//   h = norm(x);  x = a h + experts(h)
//
// Shares of the used experts sum to 1.
//
// Source: MiniMax 2025 (MiniMax-01) section 2, published model code; Qin et al. 2024 (Lightning
// Attention-2).

namespace hearth::models {
namespace {

constexpr int32_t kUsualInterval = 8;
constexpr float kMaxScale = 1e6f;

}  // namespace

Result<std::unique_ptr<Model>> load_minimax_01(const GgufFile& file, const kernels::OpTable& ops,
                                               const LoadProgressFn& progress,
                                               const LoadOptions& options) {
  Metadata m(file, "minimax-01");
  HEARTH_ASSIGN_OR_RETURN(DecoderConfig c, DecoderConfig::load_common(m));
  HEARTH_ASSIGN_OR_RETURN(
      const RecurrentConfig sizes,
      RecurrentConfig::load_lightning(m, c.layers.front().num_heads, c.layers.front().kv.k_dim));
  HEARTH_ASSIGN_OR_RETURN(c.normed_stream, m.factor("residual_scale", kMaxScale));
  HEARTH_ASSIGN_OR_RETURN(const int32_t interval,
                          m.number_or("full_attention_interval", kMaxLayers, kUsualInterval));
  HEARTH_ASSIGN_OR_RETURN(const std::vector<bool> recurrent,
                          m.flags_or("attention.recurrent_layers", c.num_layers, {}));
  HEARTH_TRY(c.load_experts(m, true));
  HEARTH_TRY(m.refuse_others());
  c.set_recurrent(sizes, [&](int32_t i) {
    return recurrent.empty() ? i % interval != interval - 1 : recurrent[i];
  });
  return load_decoder<NormedStreamDecoder>(file, c, ops, progress, options);
}

}  // namespace hearth::models
