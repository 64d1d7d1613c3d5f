#include "models/decoder/decoder.h"
#include "models/families/families.h"

// Gemma 4.
//
//   x = embed(token) * sqrt(width)
//   x += norm(attention(norm(x)) W_out)
//   x += norm((gelu(gate) * up) W_down),  gate, up = norm(x) W_gate_up
//   in models with experts:  x += norm(norm((gelu(gate) * up) W_down) + norm(experts(norm(x))))
//        (decoder/experts.cpp); the router reads norm(x) / sqrt(width), and each expert has a scale
//   in models with embeddings for each layer:  x += per_layer_branch(x) (decoder/per_layer.cpp)
//   x *= scale of the layer
//
// Scores are q.k; heads of q, k and v are normed, those of v without weights. Heads of full and of
// sliding layers differ in size. In full layers without W_v, v is made from k before its norm. The
// last layers may share the KV of the last ones of their kind before them. Logits may be capped.
// Sliding layers rotate with base 10000; of full layers' pairs only the first turn: rope_freqs
// divides the frequencies of the others by a number so large that nothing is left of them.
//
// gelu is the tanh approximation; rotated pairs are halves.
//
// Source: Google 2026 (Gemma 4), the model card and the published code.

namespace hearth::models {
namespace {

/// Sliding layers have heads of a size of their own.
Result<void> load_head_sizes(Metadata& m, DecoderConfig& c,
                             const std::function<bool(int32_t)>& slides) {
  const kernels::KvShape full = c.layers.front().kv;
  if (full.k_dim != full.v_dim) {
    return m.unsupported("attention.value_length", "values of another size than keys");
  }
  HEARTH_ASSIGN_OR_RETURN(const int32_t dim,
                          m.number_or("attention.key_length_swa", kMaxWidth, full.k_dim));
  HEARTH_ASSIGN_OR_RETURN(const int32_t v_dim,
                          m.number_or("attention.value_length_swa", kMaxWidth, dim));
  if (dim != v_dim) {
    return m.unsupported("attention.value_length_swa", "values of another size than keys");
  }
  for (int32_t i = 0; i < c.num_layers; ++i) {
    LayerSpec& layer = c.layers[i];
    layer.v_may_be_k = !slides(i);
    if (slides(i)) layer.kv.k_dim = layer.kv.v_dim = dim;
  }
  return c.load_sliding_rope(m, slides, dim);
}

}  // namespace

Result<std::unique_ptr<Model>> load_gemma4(const GgufFile& file, const kernels::OpTable& ops,
                                           const LoadProgressFn& progress,
                                           const LoadOptions& options) {
  Metadata m(file, "gemma4");
  HEARTH_ASSIGN_OR_RETURN(DecoderConfig c, DecoderConfig::load_common(m));
  HEARTH_ASSIGN_OR_RETURN(const int32_t window, m.number("attention.sliding_window", kMaxContext));
  if (!m.has("attention.sliding_window_pattern")) {
    return m.corrupt("attention.sliding_window_pattern", "missing, want which layers slide");
  }
  HEARTH_ASSIGN_OR_RETURN(const auto slides, sliding_pattern(m, c.num_layers, 0));
  HEARTH_ASSIGN_OR_RETURN(c.logit_soft_cap, m.factor_or("final_logit_softcapping", 1e6f, 0));
  HEARTH_ASSIGN_OR_RETURN(c.per_layer_width,
                          m.small_or("embedding_length_per_layer_input", kMaxWidth, 0));
  HEARTH_ASSIGN_OR_RETURN(const uint32_t experts, m.count_or("expert_count", 0));
  m.know({"expert_feed_forward_length"});
  if (experts > 0) {
    c.experts.with_dense = true;
    c.experts.logit_scale = inverse_root(c.width);
    HEARTH_TRY(c.load_experts(m, true));
  }
  HEARTH_TRY(load_head_sizes(m, c, slides));
  c.set_window(window, slides);
  HEARTH_TRY(c.share_kv(m, slides));
  HEARTH_TRY(m.refuse_others());
  c.embedding_scale = root(c.width);
  c.attention_scale = 1;
  c.activation = kernels::Activation::kGeluTanh;
  c.post_norms = true;
  c.qk_norm = QkNorm::kHeads;
  c.v_norm = true;
  c.layer_scale = true;
  c.needs_rope_divisors = true;
  return load_decoder<SandwichDecoder>(file, c, ops, progress, options);
}

}  // namespace hearth::models
