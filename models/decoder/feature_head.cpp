#include "models/decoder/feature_head.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "kernels/base/sizes.h"

namespace hearth::models {

using kernels::WeightRole;

FeatureHead::FeatureHead(Parts parts, const Target& target, std::vector<int32_t> layers)
    : Decoder(std::move(parts)),
      embedding_(weights().embedding ? weights().embedding.get() : target.embedding),
      head_(weights().output ? weights().output.get() : target.head),
      layers_(std::move(layers)) {}

void FeatureHead::take(const kernels::BatchIndex& batch, int32_t layer,
                       const kernels::TensorView& x) {
  for (int32_t i = 0; i < size32(layers_); ++i) {
    if (layers_[i] != layer) continue;
    copy_columns(batch, x, 0, act().draft.features.columns(i * x.cols, x.cols));
  }
}

int32_t added_group(const std::vector<LayerGroup>& joined) {
  return size32(joined) - (joined.back().recurrent() ? 2 : 1);
}

std::vector<LayerGroup> with_group(std::vector<LayerGroup> groups, const LayerGroup& own) {
  const bool states = !groups.empty() && groups.back().recurrent();
  groups.insert(groups.end() - (states ? 1 : 0), own);
  return groups;
}

Result<WeightHandle> FeatureHeadLoader::pack(WeightRole role, const std::string& name,
                                             std::initializer_list<int64_t> dims) {
  HEARTH_ASSIGN_OR_RETURN(const GgufTensor* tensor, set_.want(name, dims));
  return packer_.pack({tensor}, role);
}

Result<DecoderWeights::Layer> FeatureHeadLoader::layer(int32_t index, int64_t inputs) {
  constexpr WeightRole kMatmul = WeightRole::kMatmul;
  const LayerSpec& spec = c_.layers[index];
  const int64_t ffn = spec.ffn_width;
  const auto name = [&](const char* part) { return fmt::format("blk.{}.{}.weight", index, part); };
  DecoderWeights::Layer w;
  HEARTH_ASSIGN_OR_RETURN(w.qkv, pack(kMatmul, name("attn_q"), {inputs, spec.q_width()}));
  HEARTH_ASSIGN_OR_RETURN(const GgufTensor* k,
                          set_.want(name("attn_k"), {inputs, spec.kv.k_width()}));
  HEARTH_ASSIGN_OR_RETURN(const GgufTensor* v,
                          set_.want(name("attn_v"), {inputs, spec.kv.v_width()}));
  HEARTH_ASSIGN_OR_RETURN(w.kv, packer_.pack({k, v}, kMatmul));
  HEARTH_ASSIGN_OR_RETURN(w.attn_out,
                          pack(kMatmul, name("attn_output"), {spec.out_width(), width_}));
  HEARTH_ASSIGN_OR_RETURN(w.ffn_norm, pack(WeightRole::kVector, name("ffn_norm"), {width_}));
  HEARTH_ASSIGN_OR_RETURN(const GgufTensor* gate, set_.want(name("ffn_gate"), {width_, ffn}));
  HEARTH_ASSIGN_OR_RETURN(const GgufTensor* up, set_.want(name("ffn_up"), {width_, ffn}));
  HEARTH_ASSIGN_OR_RETURN(w.gate_up, packer_.pack({gate, up}, kMatmul));
  HEARTH_ASSIGN_OR_RETURN(w.down, pack(kMatmul, name("ffn_down"), {ffn, width_}));
  return w;
}

Result<void> FeatureHeadLoader::ends(const ModelInfo& target, const ModelInfo& own,
                                     DecoderWeights* w) {
  const RopeConfig& rope = c_.ropes.front();
  HEARTH_ASSIGN_OR_RETURN(const GgufTensor* divisors,
                          set_.want_if_present("rope_freqs.weight", {rope.dim / 2}));
  HEARTH_ASSIGN_OR_RETURN(const std::vector<float> values, positive_values(divisors));
  HEARTH_ASSIGN_OR_RETURN(WeightHandle frequencies,
                          packer_.pack_values("rope frequencies", rope_frequencies(rope, values)));
  w->rope_frequencies.push_back(std::move(frequencies));
  HEARTH_ASSIGN_OR_RETURN(w->output_norm,
                          pack(WeightRole::kVector, "output_norm.weight", {width_}));
  const bool same_width = c_.width == target.width;
  if (!same_width || set_.has("token_embd.weight")) {
    HEARTH_ASSIGN_OR_RETURN(w->embedding, pack(WeightRole::kEmbedding, "token_embd.weight",
                                               {width_, target.vocab_size}));
  }
  if (!same_width || !own.draft_tokens.empty() || set_.has("output.weight")) {
    HEARTH_ASSIGN_OR_RETURN(w->output,
                            pack(WeightRole::kMatmul, "output.weight", {width_, own.draft_vocab}));
  }
  return set_.check_all_used();
}

}  // namespace hearth::models
