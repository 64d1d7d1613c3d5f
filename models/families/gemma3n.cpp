#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "kernels/base/numbers.h"
#include "models/decoder/decoder.h"
#include "models/families/families.h"

// Gemma 3n: several residual streams and a product of low rank next to attention
// (decoder/altup.cpp), embeddings for each layer (decoder/per_layer.cpp).
//
//   x = embed(token) * sqrt(width)
//   attention: scores are q.k; heads of q, k and v are normed, those of v without weights. Four
//   layers slide, the fifth is full; the last layers share the KV of the last ones of their kind
//   before them. Sliding layers rotate with base 10000, full ones with rope.freq_base.
//   feed-forward: (gelu(max(0, gate - cutoff)) * up) W_down, cutoff = mean + deviations * deviation
//   of the gate's values; layers whose activation_sparsity_scale is -infinity have no cutoff
//   logits are soft capped
//
// gelu is the tanh approximation; rotated pairs are halves.
//
// Source: Google 2025 (Gemma 3n), the model card and the published code.

namespace hearth::models {
namespace {

constexpr int32_t kMaxStreams = 16;

Result<void> load_altup(Metadata& m, DecoderConfig& c) {
  AltUp& a = c.altup;
  HEARTH_ASSIGN_OR_RETURN(a.streams, m.number("altup.num_inputs", kMaxStreams));
  if (a.streams < 2) return m.corrupt("altup.num_inputs", "1, want at least 2");
  HEARTH_ASSIGN_OR_RETURN(a.active, m.small_or("altup.active_idx", a.streams - 1, 0));
  // No key has the rank.
  const GgufTensor* laurel = m.file().find_tensor("blk.0.laurel_l.weight");
  a.laurel_rank =
      laurel == nullptr
          ? 1
          : narrow<int32_t>(std::clamp<uint64_t>(laurel->dims[1], 1, uint64_t{kMaxWidth}));
  return {};
}

Result<void> load_cutoffs(Metadata& m, DecoderConfig& c) {
  constexpr std::string_view kKey = "activation_sparsity_scale";
  constexpr float kMost = 100;
  HEARTH_ASSIGN_OR_RETURN(const std::vector<float> cutoffs, m.floats(kKey, c.num_layers));
  for (int32_t i = 0; i < c.num_layers; ++i) {
    if (cutoffs[i] != kNoCutoff && std::fabs(cutoffs[i]) > kMost) {
      return m.corrupt(kKey, fmt::format("{} for layer {}, want -{} to {}, or -inf for none",
                                         cutoffs[i], i, kMost, kMost));
    }
    c.layers[i].gate_cutoff = cutoffs[i];
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Model>> load_gemma3n(const GgufFile& file, const kernels::OpTable& ops,
                                            const LoadProgressFn& progress,
                                            const LoadOptions& options) {
  Metadata m(file, "gemma3n");
  HEARTH_ASSIGN_OR_RETURN(DecoderConfig c, DecoderConfig::load_common(m));
  HEARTH_ASSIGN_OR_RETURN(const int32_t window, m.number("attention.sliding_window", kMaxContext));
  HEARTH_ASSIGN_OR_RETURN(const auto slides, sliding_pattern(m, c.num_layers, 5));
  HEARTH_ASSIGN_OR_RETURN(c.logit_soft_cap, m.factor_or("final_logit_softcapping", 1e6f, 30));
  HEARTH_ASSIGN_OR_RETURN(c.per_layer_width,
                          m.number("embedding_length_per_layer_input", kMaxWidth));
  HEARTH_TRY(load_altup(m, c));
  HEARTH_TRY(load_cutoffs(m, c));
  c.set_window(window, slides);
  HEARTH_TRY(c.load_sliding_rope(m, slides, c.ropes.front().dim));
  HEARTH_TRY(c.share_kv(m, slides));
  HEARTH_TRY(m.refuse_others());
  c.embedding_scale = root(c.width);
  c.attention_scale = 1;
  c.activation = kernels::Activation::kGeluTanh;
  c.post_norms = true;
  c.qk_norm = QkNorm::kHeads;
  c.v_norm = true;
  return load_decoder<AltUpDecoder>(file, c, ops, progress, options);
}

}  // namespace hearth::models
