#include "models/decoder/decoder.h"
#include "models/families/families.h"

// RWKV-7 (Goose): layers with a state and nothing else. The embedding's rows are normed.
//
//   x += time_mix(norm(x)) (decoder/recurrent.cpp)
//   x += relu(h W_key)^2 W_value, h being norm(x) mixed with the row before
//
// ARWKV-7: the same time mix, whose norm of heads and gate may be missing, with the norms and
// feed-forward of Qwen2:
//
//   x += time_mix(norm(x));  x += (silu(gate) * up) W_down
//
// Source: Peng et al. 2025 (RWKV-7), section 4; Yueyu et al. 2025 (ARWKV).

namespace hearth::models {
namespace {

/// `shifts`: places of a layer that read the row before, which the file may give.
Result<RecurrentConfig> load_time_mix(Metadata& m, int32_t width, int32_t shifts) {
  HEARTH_ASSIGN_OR_RETURN(RecurrentConfig sizes, RecurrentConfig::load_wkv(m, width));
  if (sizes.ffn_shift == (shifts == 2)) return sizes;
  return m.unsupported("token_shift_count", shifts == 2 ? "1, want 2" : "2, want 1");
}

}  // namespace

Result<std::unique_ptr<Model>> load_rwkv7(const GgufFile& file, const kernels::OpTable& ops,
                                          const LoadProgressFn& progress,
                                          const LoadOptions& options) {
  Metadata m(file, "rwkv7");
  HEARTH_ASSIGN_OR_RETURN(DecoderConfig c,
                          DecoderConfig::load_common(m, {.norm = Norm::kLayer, .hybrid = true}));
  HEARTH_ASSIGN_OR_RETURN(RecurrentConfig sizes, load_time_mix(m, c.width, 2));
  HEARTH_TRY(m.refuse_others());
  if (sizes.gate_rank == 0) return m.corrupt("attention.gate_lora_rank", "0 or missing, want more");
  sizes.norm = true;
  c.set_recurrent(sizes);
  c.weighted_embedding_norm = true;
  c.ffn_norm = "attn_norm_2";
  c.gated_ffn = false;
  c.relu_squared = true;
  return load_decoder<PreNormDecoder>(file, c, ops, progress, options);
}

Result<std::unique_ptr<Model>> load_arwkv7(const GgufFile& file, const kernels::OpTable& ops,
                                           const LoadProgressFn& progress,
                                           const LoadOptions& options) {
  Metadata m(file, "arwkv7");
  HEARTH_ASSIGN_OR_RETURN(DecoderConfig c, DecoderConfig::load_common(m, {.hybrid = true}));
  HEARTH_ASSIGN_OR_RETURN(const RecurrentConfig sizes, load_time_mix(m, c.width, 1));
  HEARTH_TRY(m.refuse_others());
  c.set_recurrent(sizes);
  return load_decoder<PreNormDecoder>(file, c, ops, progress, options);
}

}  // namespace hearth::models
