#include <fmt/core.h>

#include "models/decoder/decoder.h"
#include "models/families/families.h"

// Jamba: layers of Mamba, some of attention without positions; some have experts in place of the
// feed-forward.
//
//   x += mamba(norm(x)), or attention(norm(x)) W_out (decoder/recurrent.cpp)
//   x += (silu(gate) * up) W_down, or experts
//
// The rows that make dt, B and C are normed. Experts' shares are of a softmax over all experts.
//
// Source: Lieber et al. 2024 (Jamba) section 3; Jamba Team 2024 (Jamba-1.5).

namespace hearth::models {

Result<std::unique_ptr<Model>> load_jamba(const GgufFile& file, const kernels::OpTable& ops,
                                          const LoadProgressFn& progress,
                                          const LoadOptions& options) {
  Metadata m(file, "jamba");
  HEARTH_ASSIGN_OR_RETURN(DecoderConfig c, DecoderConfig::load_common(m, {.hybrid = true}));
  HEARTH_ASSIGN_OR_RETURN(RecurrentConfig sizes, RecurrentConfig::load_mamba(m));
  sizes.inner_norms = true;
  c.set_recurrent(sizes);
  c.rotate_only([](int32_t) { return false; });
  HEARTH_ASSIGN_OR_RETURN(const uint32_t experts, m.count_or("expert_count", 0));
  m.know({"expert_used_count"});
  if (experts > 0) {
    // Only their tensors show which layers have experts.
    const std::vector<LayerSpec> dense = c.layers;
    HEARTH_TRY(c.load_experts(m, false));
    c.experts.ffn_width = dense.front().ffn_width;
    for (int32_t i = 0; i < c.num_layers; ++i) {
      if (file.find_tensor(fmt::format("blk.{}.ffn_gate_inp.weight", i)) != nullptr) continue;
      c.layers[i] = dense[i];
    }
    c.group_layers();
  }
  HEARTH_TRY(m.refuse_others());
  return load_decoder<PreNormDecoder>(file, c, ops, progress, options);
}

}  // namespace hearth::models
