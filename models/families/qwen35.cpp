#include "models/decoder/decoder.h"
#include "models/families/families.h"

// Qwen 3.5 and Qwen3-Next: most layers are gated delta nets (decoder/recurrent.cpp), every fourth
// is gated attention:
//
//   x += gated_delta(norm(x)), or
//   x += (attention(q, k, v) * sigmoid(gate)) W_out;  [q, gate], k, v = norm(x) W_qkv
//   x += (silu(gate) * up) W_down, or experts and one more, scaled by a sigmoid, that all tokens
//   use
//
// Heads of q and k are normed; of each head only the first values are rotated (halves). Positions
// of text are the same in all sections of the rotation. The layer for drafting (nextn) is one of
// gated attention (decoder/draft_layer.cpp).
//
// Source: Qwen Team 2025 (Qwen3-Next) and 2026 (Qwen3.5), the model cards and the published code;
// Yang, Kautz and Hatamizadeh 2024 (Gated Delta Networks); Qiu et al. 2025 (Gated Attention).

namespace hearth::models {
namespace {

constexpr int32_t kUsualInterval = 4;

Result<DecoderConfig> load_qwen35_config(Metadata& m, bool tiled, const LoadOptions& options) {
  HEARTH_ASSIGN_OR_RETURN(
      DecoderConfig c,
      DecoderConfig::load_common(m, {.hybrid = true, .draft_layer = options.draft_layer}));
  HEARTH_ASSIGN_OR_RETURN(RecurrentConfig sizes, RecurrentConfig::load_gated_delta(m));
  HEARTH_ASSIGN_OR_RETURN(const int32_t interval,
                          m.number_or("full_attention_interval", kMaxLayers, kUsualInterval));
  HEARTH_ASSIGN_OR_RETURN(
      const std::vector<bool> recurrent,
      m.flags_or("attention.recurrent_layers", c.num_layers + c.num_draft_layers, {}));
  m.know({"rope.dimension_sections"});
  sizes.tiled = tiled;
  sizes.joined_gates = !tiled;
  c.set_recurrent(sizes, [&](int32_t i) {
    return recurrent.empty() ? i % interval != interval - 1 : recurrent[i];
  });
  c.gate_in_q = true;
  c.qk_norm = QkNorm::kHeads;
  c.ffn_norm = "post_attention_norm";
  return c;
}

Result<std::unique_ptr<Model>> load_with_experts(std::string_view architecture, bool tiled,
                                                 const GgufFile& file, const kernels::OpTable& ops,
                                                 const LoadProgressFn& progress,
                                                 const LoadOptions& options) {
  Metadata m(file, architecture);
  HEARTH_ASSIGN_OR_RETURN(DecoderConfig c, load_qwen35_config(m, tiled, options));
  HEARTH_TRY(c.load_experts(m, true));
  HEARTH_TRY(c.load_shared_expert(m));
  HEARTH_TRY(m.refuse_others());
  c.experts.shared_gate = true;
  return load_decoder<PreNormDecoder>(file, c, ops, progress, options);
}

}  // namespace

Result<std::unique_ptr<Model>> load_qwen35(const GgufFile& file, const kernels::OpTable& ops,
                                           const LoadProgressFn& progress,
                                           const LoadOptions& options) {
  Metadata m(file, "qwen35");
  HEARTH_ASSIGN_OR_RETURN(const DecoderConfig c, load_qwen35_config(m, true, options));
  HEARTH_TRY(m.refuse_others());
  return load_decoder<PreNormDecoder>(file, c, ops, progress, options);
}

Result<std::unique_ptr<Model>> load_qwen35moe(const GgufFile& file, const kernels::OpTable& ops,
                                              const LoadProgressFn& progress,
                                              const LoadOptions& options) {
  return load_with_experts("qwen35moe", true, file, ops, progress, options);
}

Result<std::unique_ptr<Model>> load_qwen3next(const GgufFile& file, const kernels::OpTable& ops,
                                              const LoadProgressFn& progress,
                                              const LoadOptions& options) {
  return load_with_experts("qwen3next", false, file, ops, progress, options);
}

}  // namespace hearth::models
