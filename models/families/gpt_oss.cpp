#include "models/decoder/decoder.h"
#include "models/families/families.h"

// gpt-oss: as Llama, except that
//
//   every second layer slides, the first one does; rotated pairs are halves, stretched by YaRN
//   whose range of blended pairs is not rounded softmax has one more logit per head, a learned sink
//   without a value all projections have a bias x += sum of share_e * ((clamp(up_e) + 1) *
//   swish(min(gate_e, 7)) W_down_e + b_down_e)
//        gate_e, up_e = h W_gate_up_e + b_gate_up_e; shares = softmax over the chosen experts
//
// Source: OpenAI 2025 (gpt-oss model card) section 2; Xiao et al. 2023 (attention sinks).

namespace hearth::models {
Result<std::unique_ptr<Model>> load_gpt_oss(const GgufFile& file, const kernels::OpTable& ops,
                                            const LoadProgressFn& progress,
                                            const LoadOptions& options) {
  Metadata m(file, "gpt-oss");
  HEARTH_ASSIGN_OR_RETURN(DecoderConfig c, DecoderConfig::load_common(m));
  HEARTH_ASSIGN_OR_RETURN(const int32_t window, m.number("attention.sliding_window", kMaxContext));
  HEARTH_ASSIGN_OR_RETURN(const auto slides, sliding_pattern(m, c.num_layers, 2));
  HEARTH_TRY(c.load_experts(m, true));
  HEARTH_TRY(m.refuse_others());
  c.set_window(window, slides);
  c.activation = kernels::Activation::kClampedSwish;
  c.qkv_bias = true;
  c.out_bias = true;
  c.ropes.front().rounded_range = false;
  c.sinks = true;
  c.ffn_norm = "post_attention_norm";
  c.experts.biases = true;
  return load_decoder<PreNormDecoder>(file, c, ops, progress, options);
}

}  // namespace hearth::models
