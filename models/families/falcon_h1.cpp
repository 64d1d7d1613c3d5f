#include "models/decoder/decoder.h"
#include "models/families/families.h"

// Falcon-H1: in each layer attention and Mamba-2 read the same normed row.
//
//   h = norm(x);  x += attention(h) W_out + mamba2(h) (decoder/recurrent.cpp)
//   x += (silu(gate) * up) W_down;  rotated pairs are halves
//
// The multipliers of the published models are part of the stored weights.
//
// Source: Falcon Team 2025 (Falcon-H1) section 2.

namespace hearth::models {

Result<std::unique_ptr<Model>> load_falcon_h1(const GgufFile& file, const kernels::OpTable& ops,
                                              const LoadProgressFn& progress,
                                              const LoadOptions& options) {
  Metadata m(file, "falcon-h1");
  HEARTH_ASSIGN_OR_RETURN(DecoderConfig c, DecoderConfig::load_common(m));
  HEARTH_ASSIGN_OR_RETURN(c.recurrent, RecurrentConfig::load_mamba2(m));
  HEARTH_TRY(m.refuse_others());
  c.plain_ffn_norm = file.find_tensor("blk.0.ffn_norm.weight") == nullptr;
  for (LayerSpec& layer : c.layers) layer.recurrent = true;
  c.group_layers();
  return load_decoder<PreNormDecoder>(file, c, ops, progress, options);
}

}  // namespace hearth::models
