#include "models/decoder/decoder.h"
#include "models/families/families.h"

// Cohere's Command R7B and Command A. Attention and feed-forward read the same normed row; layer
// norms have no bias:
//
//   h = norm(x);  x += attention(h) W_out + (silu(gate) * up) W_down,  gate, up = h W_gate_up
//   logits = norm(x) W_head * logit_scale
//
// Three layers slide and the fourth is full. Only those that slide use positions; rotated pairs are
// neighbours.
//
// Source: Cohere 2025 (Command A); Wang and Komatsuzaki 2021 (GPT-J: parallel branches).

namespace hearth::models {

Result<std::unique_ptr<Model>> load_cohere2(const GgufFile& file, const kernels::OpTable& ops,
                                            const LoadProgressFn& progress,
                                            const LoadOptions& options) {
  Metadata m(file, "cohere2");
  HEARTH_ASSIGN_OR_RETURN(DecoderConfig c,
                          DecoderConfig::load_common(m, {.norm = Norm::kLayerNoBias}));
  HEARTH_ASSIGN_OR_RETURN(const int32_t window, m.number("attention.sliding_window", kMaxContext));
  HEARTH_ASSIGN_OR_RETURN(const auto slides, sliding_pattern(m, c.num_layers, 4));
  HEARTH_ASSIGN_OR_RETURN(c.logit_scale, m.factor("logit_scale", 1e6f));
  HEARTH_TRY(m.refuse_others());
  c.pairs = kernels::RopePairs::kNeighbours;
  c.ffn_norm = "";
  c.set_window(window, slides);
  c.rotate_only(slides);
  return load_decoder<ParallelDecoder>(file, c, ops, progress, options);
}

}  // namespace hearth::models
