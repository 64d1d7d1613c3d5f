#include "models/decoder/decoder.h"
#include "models/families/families.h"
#include "models/families/latent.h"

// Kimi Linear: most layers are Kimi delta attention (decoder/recurrent.cpp), every fourth is latent
// attention (decoder/latent_attention.cpp) without positions.
//
//   x += kimi_delta(norm(x)), or latent_attention(norm(x)) W_out
//   x += (silu(gate) * up) W_down, or experts and one more that all tokens use
//
// The experts are chosen by sigmoids with a learned bias, as in deepseek2.cpp.
//
// Source: Kimi Team 2025 (Kimi Linear), sections 3 and 4.

namespace hearth::models {

Result<std::unique_ptr<Model>> load_kimi_linear(const GgufFile& file, const kernels::OpTable& ops,
                                                const LoadProgressFn& progress,
                                                const LoadOptions& options) {
  Metadata m(file, "kimi-linear");
  HEARTH_ASSIGN_OR_RETURN(DecoderConfig c, DecoderConfig::load_common(m, {.hybrid = true}));
  if (c.ropes.empty()) {
    return m.unsupported("attention.head_count_kv", "0 for every layer, without latent attention");
  }
  // llama.cpp's converter writes config.json's head_dim as attention.value_length, which the model
  // does not use.
  for (LayerSpec& layer : c.layers) layer.kv.v_dim = layer.kv.k_dim - c.ropes.front().dim;
  HEARTH_TRY(load_latent(m, c));
  const int32_t heads = c.most([](const LayerSpec& layer) { return layer.num_heads; });
  HEARTH_ASSIGN_OR_RETURN(const RecurrentConfig sizes, RecurrentConfig::load_kimi_delta(m, heads));
  c.set_recurrent(sizes);
  HEARTH_TRY(load_routing(m, c, true));
  HEARTH_TRY(m.refuse_others());
  c.rotate_only([](int32_t) { return false; });
  c.ropes.clear();
  return load_decoder<LatentDecoder>(file, c, ops, progress, options);
}

}  // namespace hearth::models
