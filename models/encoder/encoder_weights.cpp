#include "models/encoder/encoder_weights.h"

#include <fmt/core.h>

#include "kernels/ops/checks.h"
#include "models/weights/tensor_set.h"

namespace hearth::models {
namespace {

using kernels::WeightRole;

/// Null: the file has none.
struct EncoderLayerTensors {
  const GgufTensor *qkv, *q, *k, *v;
  const GgufTensor *qkv_bias, *q_bias, *k_bias, *v_bias;
  const GgufTensor *attn_out, *attn_out_bias, *attn_norm, *attn_norm_bias;
  const GgufTensor *gate, *up, *up_bias, *down, *down_bias, *ffn_norm, *ffn_norm_bias;
};

Result<EncoderLayerTensors> find_layer(TensorSet& set, const EncoderConfig& c, int32_t index) {
  const auto name = [&](std::string_view rest) { return fmt::format("blk.{}.{}", index, rest); };
  EncoderLayerTensors t{};
  const int64_t width = c.width;
  if (set.has(name("attn_qkv.weight"))) {
    HEARTH_ASSIGN_OR_RETURN(t.qkv, set.want(name("attn_qkv.weight"), {width, 3 * width}));
    HEARTH_ASSIGN_OR_RETURN(t.qkv_bias, set.want_if_present(name("attn_qkv.bias"), {3 * width}));
  } else {
    HEARTH_ASSIGN_OR_RETURN(t.q, set.want(name("attn_q.weight"), {width, width}));
    HEARTH_ASSIGN_OR_RETURN(t.k, set.want(name("attn_k.weight"), {width, width}));
    HEARTH_ASSIGN_OR_RETURN(t.v, set.want(name("attn_v.weight"), {width, width}));
    HEARTH_ASSIGN_OR_RETURN(t.q_bias, set.want_if_present(name("attn_q.bias"), {width}));
    if (t.q_bias != nullptr) {
      HEARTH_ASSIGN_OR_RETURN(t.k_bias, set.want(name("attn_k.bias"), {width}));
      HEARTH_ASSIGN_OR_RETURN(t.v_bias, set.want(name("attn_v.bias"), {width}));
    }
  }
  HEARTH_ASSIGN_OR_RETURN(t.attn_out, set.want(name("attn_output.weight"), {width, width}));
  HEARTH_ASSIGN_OR_RETURN(t.attn_out_bias, set.want_if_present(name("attn_output.bias"), {width}));
  HEARTH_ASSIGN_OR_RETURN(t.attn_norm, set.want(name("attn_output_norm.weight"), {width}));
  HEARTH_ASSIGN_OR_RETURN(t.attn_norm_bias, set.want(name("attn_output_norm.bias"), {width}));
  const int64_t ffn = c.ffn_width;
  if (c.gated) {
    HEARTH_ASSIGN_OR_RETURN(t.gate, set.want(name("ffn_gate.weight"), {width, ffn}));
  } else {
    HEARTH_ASSIGN_OR_RETURN(t.up_bias, set.want_if_present(name("ffn_up.bias"), {ffn}));
  }
  HEARTH_ASSIGN_OR_RETURN(t.up, set.want(name("ffn_up.weight"), {width, ffn}));
  HEARTH_ASSIGN_OR_RETURN(t.down, set.want(name("ffn_down.weight"), {ffn, width}));
  HEARTH_ASSIGN_OR_RETURN(t.down_bias, set.want_if_present(name("ffn_down.bias"), {width}));
  HEARTH_ASSIGN_OR_RETURN(t.ffn_norm, set.want(name("layer_output_norm.weight"), {width}));
  HEARTH_ASSIGN_OR_RETURN(t.ffn_norm_bias, set.want(name("layer_output_norm.bias"), {width}));
  return t;
}

Result<NormWeights> pack_norm(WeightPacker& packer, const GgufTensor* weight,
                              const GgufTensor* bias) {
  NormWeights out;
  HEARTH_ASSIGN_OR_RETURN(out.weight, packer.pack({weight}, WeightRole::kVector));
  HEARTH_ASSIGN_OR_RETURN(out.bias, packer.pack({bias}, WeightRole::kVector));
  return out;
}

Result<EncoderWeights::Layer> pack_layer(WeightPacker& packer, const EncoderLayerTensors& t) {
  constexpr WeightRole kMatmul = WeightRole::kMatmul;
  constexpr WeightRole kVector = WeightRole::kVector;
  EncoderWeights::Layer w;
  if (t.qkv != nullptr) {
    HEARTH_ASSIGN_OR_RETURN(w.qkv, packer.pack({t.qkv}, kMatmul));
    HEARTH_ASSIGN_OR_RETURN(w.qkv_bias, packer.pack({t.qkv_bias}, kVector));
  } else {
    HEARTH_ASSIGN_OR_RETURN(w.qkv, packer.pack({t.q, t.k, t.v}, kMatmul));
    HEARTH_ASSIGN_OR_RETURN(w.qkv_bias, packer.pack({t.q_bias, t.k_bias, t.v_bias}, kVector));
  }
  HEARTH_ASSIGN_OR_RETURN(w.attn_out, packer.pack({t.attn_out}, kMatmul));
  HEARTH_ASSIGN_OR_RETURN(w.attn_out_bias, packer.pack({t.attn_out_bias}, kVector));
  HEARTH_ASSIGN_OR_RETURN(w.attn_norm, pack_norm(packer, t.attn_norm, t.attn_norm_bias));
  if (t.gate != nullptr) {
    HEARTH_ASSIGN_OR_RETURN(w.up, packer.pack({t.gate, t.up}, kMatmul));
  } else {
    HEARTH_ASSIGN_OR_RETURN(w.up, packer.pack({t.up}, kMatmul));
    HEARTH_ASSIGN_OR_RETURN(w.up_bias, packer.pack({t.up_bias}, kVector));
  }
  HEARTH_ASSIGN_OR_RETURN(w.down, packer.pack({t.down}, kMatmul));
  HEARTH_ASSIGN_OR_RETURN(w.down_bias, packer.pack({t.down_bias}, kVector));
  HEARTH_ASSIGN_OR_RETURN(w.ffn_norm, pack_norm(packer, t.ffn_norm, t.ffn_norm_bias));
  return w;
}

/// A matrix whose number of rows is not in the metadata; at least `least`.
Result<const GgufTensor*> find_rows(const GgufFile& file, TensorSet& set, std::string_view name,
                                    int64_t width, int64_t least) {
  const GgufTensor* tensor = file.find_tensor(name);
  const auto rows = tensor != nullptr && tensor->dims[1] <= INT32_MAX
                        ? static_cast<int64_t>(tensor->dims[1])
                        : least;
  HEARTH_ASSIGN_OR_RETURN(tensor, set.want(name, {width, rows}));
  if (rows >= least) return tensor;
  return Error::corrupt(
      fmt::format("{}: shape {}, want at least {} rows", name, tensor->shape(), least));
}

/// The first row of the token types, which applies to all tokens of a single text.
Result<WeightHandle> pack_token_type(WeightPacker& packer, const GgufTensor* tensor) {
  kernels::HostTensor row = host_tensor(*tensor);
  if (kernels::info(row.dtype).block_elements != 1) {
    return Error::unsupported(fmt::format("{}: type {} where plain values are wanted", tensor->name,
                                          kernels::info(row.dtype).name));
  }
  row.rows = 1;
  row.bytes = row.bytes.first(kernels::bytes_of(row.dtype, row.cols));
  return packer.pack_values("token_types.weight", kernels::vector_values(std::span(&row, 1)));
}

}  // namespace

Result<EncoderWeights> EncoderWeights::load(const GgufFile& file, const EncoderConfig& c,
                                            const kernels::OpTable& ops,
                                            const LoadProgressFn& progress) {
  TensorSet set(file);
  HEARTH_ASSIGN_OR_RETURN(const GgufTensor* embedding,
                          find_rows(file, set, "token_embd.weight", c.width, 1));
  if (file.has("tokenizer.ggml.tokens")) {
    HEARTH_ASSIGN_OR_RETURN(const auto tokens, file.get<GgufStrings>("tokenizer.ggml.tokens"));
    if (tokens.size() != embedding->dims[1]) {
      return Error::corrupt(
          fmt::format("token_embd.weight: shape {}, want a row for each of the {} tokens",
                      embedding->shape(), tokens.size()));
    }
  }
  const GgufTensor* types = nullptr;
  if (set.has("token_types.weight")) {
    HEARTH_ASSIGN_OR_RETURN(types, find_rows(file, set, "token_types.weight", c.width, 1));
  }
  const GgufTensor* positions = nullptr;
  if (!c.rope) {
    HEARTH_ASSIGN_OR_RETURN(
        positions, find_rows(file, set, "position_embd.weight", c.width, c.context_length));
  }
  HEARTH_ASSIGN_OR_RETURN(const GgufTensor* norm, set.want("token_embd_norm.weight", {c.width}));
  HEARTH_ASSIGN_OR_RETURN(const GgufTensor* norm_bias, set.want("token_embd_norm.bias", {c.width}));
  std::vector<EncoderLayerTensors> layers;
  for (int32_t i = 0; i < c.num_layers; ++i) {
    HEARTH_ASSIGN_OR_RETURN(const EncoderLayerTensors layer, find_layer(set, c, i));
    layers.push_back(layer);
  }
  if (c.pooling == Pooling::kRank) set.ignore_all("cls.");  // see Ranker
  HEARTH_TRY(set.check_all_used());

  WeightPacker packer(file, ops, progress);
  EncoderWeights w;
  HEARTH_ASSIGN_OR_RETURN(w.embedding, packer.pack({embedding}, WeightRole::kEmbedding));
  if (types != nullptr) {
    HEARTH_ASSIGN_OR_RETURN(w.token_type, pack_token_type(packer, types));
  }
  HEARTH_ASSIGN_OR_RETURN(w.positions, packer.pack({positions}, WeightRole::kEmbedding));
  if (c.rope) {
    HEARTH_ASSIGN_OR_RETURN(
        w.rope_frequencies,
        packer.pack_values("rope frequencies", models::rope_frequencies(*c.rope, {})));
  }
  HEARTH_ASSIGN_OR_RETURN(w.embedding_norm, pack_norm(packer, norm, norm_bias));
  packer.report();
  for (const EncoderLayerTensors& layer : layers) {
    HEARTH_ASSIGN_OR_RETURN(Layer packed, pack_layer(packer, layer));
    w.layers.push_back(std::move(packed));
    packer.report();
  }
  w.bytes = packer.device_bytes();
  return w;
}

}  // namespace hearth::models
