#include <utility>

#include "models/decoder/decoder.h"
#include "models/families/families.h"

// OLMo 2 and 3. Norms come after a branch instead of before it, and q and k are normed over all
// their heads together:
//
//   q, k, v = x W_qkv;  q = norm(q), k = norm(k);  rotate q, k (halves)
//   x += norm(attention(q, k, v) W_out)
//   x += norm((silu(gate) * up) W_down),  gate, up = x W_gate_up
//
// OLMo 3 (the same architecture with a window): three layers slide, the fourth is full. Only full
// layers scale their rotation for long contexts.
//
// Source: OLMo Team 2024 (2 OLMo 2 Furious) section 3.1; OLMo Team 2025 (OLMo 3) section 3.

namespace hearth::models {
namespace {

constexpr float kMaxSlidingBase = 1e30f;

Result<void> set_sliding_layers(Metadata& m, DecoderConfig& c) {
  HEARTH_ASSIGN_OR_RETURN(const uint32_t window, m.count_or("attention.sliding_window", 0));
  HEARTH_ASSIGN_OR_RETURN(const auto slides, sliding_pattern(m, c.num_layers, 4));
  if (window == 0) return {};
  if (std::cmp_less(window, c.context_length)) {
    c.set_window(window, slides);
  }
  RopeConfig plain;
  plain.dim = c.ropes.front().dim;
  HEARTH_ASSIGN_OR_RETURN(plain.base,
                          m.factor_or("rope.freq_base_swa", kMaxSlidingBase, c.ropes.front().base));
  c.ropes.push_back(plain);
  for (int32_t i = 0; i < c.num_layers; ++i) {
    c.layers[i].rope = slides(i) ? 1 : 0;
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Model>> load_olmo2(const GgufFile& file, const kernels::OpTable& ops,
                                          const LoadProgressFn& progress,
                                          const LoadOptions& options) {
  Metadata m(file, "olmo2");
  HEARTH_ASSIGN_OR_RETURN(DecoderConfig c, DecoderConfig::load_common(m));
  HEARTH_TRY(set_sliding_layers(m, c));
  HEARTH_TRY(m.refuse_others());
  c.pre_norms = false;
  c.post_norms = true;
  c.qk_norm = QkNorm::kWidth;
  return load_decoder<PostNormDecoder>(file, c, ops, progress, options);
}

}  // namespace hearth::models
