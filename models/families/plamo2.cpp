#include "models/decoder/decoder.h"
#include "models/families/families.h"

// PLaMo 2: layers with a state, some of attention; norms on both sides of each branch.
//
//   x += norm(plamo(norm(x))), or norm(attention(norm(x)) W_out) (decoder/recurrent.cpp)
//   x += norm((silu(gate) * up) W_down)
//
// Each head of q and of k has a norm of its own; rotated pairs are halves.
//
// Source: Preferred Networks 2025 (PLaMo 2), the published code.

namespace hearth::models {

Result<std::unique_ptr<Model>> load_plamo2(const GgufFile& file, const kernels::OpTable& ops,
                                           const LoadProgressFn& progress,
                                           const LoadOptions& options) {
  Metadata m(file, "plamo2");
  HEARTH_ASSIGN_OR_RETURN(DecoderConfig c, DecoderConfig::load_common(m, {.hybrid = true}));
  HEARTH_ASSIGN_OR_RETURN(const RecurrentConfig sizes, RecurrentConfig::load_plamo(m, c.width));
  HEARTH_TRY(m.refuse_others());
  c.set_recurrent(sizes);
  c.qk_norm = QkNorm::kEachHead;
  c.post_norms = true;
  c.plain_post_norms = true;
  c.fused_qkv = true;
  c.fused_gate_up = true;
  return load_decoder<SandwichDecoder>(file, c, ops, progress, options);
}

}  // namespace hearth::models
