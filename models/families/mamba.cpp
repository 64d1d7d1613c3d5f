#include "models/decoder/decoder.h"
#include "models/families/families.h"

// Mamba and Mamba-2: layers with a state and nothing else.
//
//   x += mamba(norm(x)) (decoder/recurrent.cpp)
//
// Source: Gu and Dao 2023 (Mamba); Dao and Gu 2024 (Mamba-2).

namespace hearth::models {

Result<std::unique_ptr<Model>> load_mamba(const GgufFile& file, const kernels::OpTable& ops,
                                          const LoadProgressFn& progress,
                                          const LoadOptions& options) {
  Metadata m(file, "mamba");
  HEARTH_ASSIGN_OR_RETURN(DecoderConfig c, DecoderConfig::load_common(m, {.hybrid = true}));
  HEARTH_ASSIGN_OR_RETURN(const RecurrentConfig sizes, RecurrentConfig::load_mamba(m));
  HEARTH_ASSIGN_OR_RETURN(const bool plain_norms, m.flag_or("ssm.dt_b_c_rms", false));
  if (plain_norms) return m.unsupported("ssm.dt_b_c_rms", "norms without weights");
  HEARTH_TRY(m.refuse_others());
  c.set_recurrent(sizes);
  return load_decoder<PreNormDecoder>(file, c, ops, progress, options);
}

Result<std::unique_ptr<Model>> load_mamba2(const GgufFile& file, const kernels::OpTable& ops,
                                           const LoadProgressFn& progress,
                                           const LoadOptions& options) {
  Metadata m(file, "mamba2");
  HEARTH_ASSIGN_OR_RETURN(DecoderConfig c, DecoderConfig::load_common(m, {.hybrid = true}));
  HEARTH_ASSIGN_OR_RETURN(RecurrentConfig sizes, RecurrentConfig::load_mamba2(m));
  HEARTH_TRY(m.refuse_others());
  sizes.norm = true;
  c.set_recurrent(sizes);
  return load_decoder<PreNormDecoder>(file, c, ops, progress, options);
}

}  // namespace hearth::models
