#include <cmath>

#include "models/decoder/decoder.h"
#include "models/families/families.h"

// Mistral Small 3.1 and 3.2, Ministral 3: as Llama, with YaRN. In Ministral 3 the query at position
// p grows by
//
//   1 + temperature_scale * ln(1 + floor(p / original_context_length))
//
// YaRN's magnitude is divided by that of rope.scaling.yarn_log_multiplier, if the file has one:
// 1 + 0.1 * yarn_log_multiplier * ln(factor).
//
// Source: Mistral AI 2025 (Ministral 3, its published code); Nakanishi 2025 (Scalable-Softmax);
// Peng et al. 2023 (YaRN).

namespace hearth::models {

Result<std::unique_ptr<Model>> load_mistral3(const GgufFile& file, const kernels::OpTable& ops,
                                             const LoadProgressFn& progress,
                                             const LoadOptions& options) {
  Metadata m(file, "mistral3");
  HEARTH_ASSIGN_OR_RETURN(DecoderConfig c, DecoderConfig::load_common(m));
  HEARTH_TRY(c.load_position_scale(m, "rope.scaling.original_context_length"));
  HEARTH_ASSIGN_OR_RETURN(const float multiplier,
                          m.factor_or("rope.scaling.yarn_log_multiplier", 1e3f, 0));
  HEARTH_ASSIGN_OR_RETURN(const uint32_t experts, m.count_or("expert_count", 0));
  if (experts > 0) {
    HEARTH_TRY(c.load_experts(m, true));
  }
  HEARTH_TRY(m.refuse_others());
  RopeConfig& rope = c.ropes.front();
  if (rope.scaling == RopeConfig::Scaling::kYarn) {
    rope.attention_factor /= 1 + 0.1f * multiplier * std::log(rope.factor);
  }
  c.pairs = kernels::RopePairs::kNeighbours;
  c.rope_divisors = true;
  return load_decoder<PreNormDecoder>(file, c, ops, progress, options);
}

}  // namespace hearth::models
