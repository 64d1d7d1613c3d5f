#include "models/encoder/encoder_config.h"

#include <fmt/core.h>

namespace hearth::models {

Result<EncoderConfig> EncoderConfig::load_common(Metadata& m) {
  EncoderConfig c;
  c.architecture = m.architecture();
  HEARTH_ASSIGN_OR_RETURN(c.context_length, m.number("context_length", kMaxContext));
  HEARTH_ASSIGN_OR_RETURN(c.width, m.number("embedding_length", kMaxWidth));
  HEARTH_ASSIGN_OR_RETURN(c.num_layers, m.number("block_count", kMaxLayers));
  HEARTH_ASSIGN_OR_RETURN(c.ffn_width, m.number("feed_forward_length", kMaxWidth));
  HEARTH_ASSIGN_OR_RETURN(c.num_heads, m.number("attention.head_count", kMaxWidth));
  HEARTH_ASSIGN_OR_RETURN(const int32_t kv_heads,
                          m.number_or("attention.head_count_kv", kMaxWidth, c.num_heads));
  if (kv_heads != c.num_heads) {
    return m.unsupported("attention.head_count_kv",
                         fmt::format("{} with {} heads", kv_heads, c.num_heads));
  }
  if (c.width % c.num_heads != 0) {
    return m.corrupt("attention.head_count",
                     fmt::format("{}, want a divisor of the width {}", c.num_heads, c.width));
  }
  c.head_dim = c.width / c.num_heads;
  HEARTH_ASSIGN_OR_RETURN(c.eps, m.factor("attention.layer_norm_epsilon", 1));
  HEARTH_ASSIGN_OR_RETURN(const bool causal, m.flag_or("attention.causal", false));
  if (causal) return m.unsupported("attention.causal", "true");
  m.know({"pooling_type"});
  HEARTH_ASSIGN_OR_RETURN(c.pooling, load_pooling(m.file(), c.architecture));
  return c;
}

}  // namespace hearth::models
