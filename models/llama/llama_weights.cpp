#include "models/llama/llama_weights.h"

#include <fmt/format.h>

#include <cmath>
#include <initializer_list>
#include <span>
#include <string>

#include "models/tensor_set.h"

namespace hearth::models {
namespace {

using kernels::WeightRole;

struct LayerTensors {
  const GgufTensor* attn_norm;
  const GgufTensor *q, *k, *v, *q_bias, *k_bias, *v_bias;
  const GgufTensor *attn_out, *attn_bias;
  const GgufTensor* ffn_norm;
  const GgufTensor *gate, *up, *gate_bias, *up_bias;
  const GgufTensor *down, *down_bias;
};

struct Tensors {
  const GgufTensor* embedding;
  const GgufTensor* rope_divisors;  // or null
  std::vector<LayerTensors> layers;
  const GgufTensor* output_norm;
  const GgufTensor* output;  // or null
};

// ---- Finding --------------------------------------------------------------------------------

Result<void> all_or_none(std::initializer_list<const GgufTensor*> tensors) {
  const GgufTensor* present = nullptr;
  size_t count = 0;
  for (const GgufTensor* tensor : tensors) {
    if (tensor == nullptr) continue;
    present = tensor;
    ++count;
  }
  if (count == 0 || count == tensors.size()) return {};
  return Error{ErrorCode::kUnsupported,
               fmt::format("{}: a bias without those it is joined with", present->name), ""};
}

Result<LayerTensors> find_layer(TensorSet& set, const LlamaConfig& c, int32_t index) {
  const auto name = [index](std::string_view rest) {
    return fmt::format("blk.{}.{}", index, rest);
  };
  LayerTensors t{};
  HEARTH_ASSIGN_OR_RETURN(t.attn_norm, set.want(name("attn_norm.weight"), {c.width}));
  HEARTH_ASSIGN_OR_RETURN(t.q, set.want(name("attn_q.weight"), {c.width, c.q_width()}));
  HEARTH_ASSIGN_OR_RETURN(t.k, set.want(name("attn_k.weight"), {c.width, c.kv_width()}));
  HEARTH_ASSIGN_OR_RETURN(t.v, set.want(name("attn_v.weight"), {c.width, c.kv_width()}));
  HEARTH_ASSIGN_OR_RETURN(t.q_bias, set.want_if_present(name("attn_q.bias"), {c.q_width()}));
  HEARTH_ASSIGN_OR_RETURN(t.k_bias, set.want_if_present(name("attn_k.bias"), {c.kv_width()}));
  HEARTH_ASSIGN_OR_RETURN(t.v_bias, set.want_if_present(name("attn_v.bias"), {c.kv_width()}));
  HEARTH_TRY(all_or_none({t.q_bias, t.k_bias, t.v_bias}));
  HEARTH_ASSIGN_OR_RETURN(t.attn_out, set.want(name("attn_output.weight"), {c.q_width(), c.width}));
  HEARTH_ASSIGN_OR_RETURN(t.attn_bias, set.want_if_present(name("attn_output.bias"), {c.width}));
  HEARTH_ASSIGN_OR_RETURN(t.ffn_norm, set.want(name("ffn_norm.weight"), {c.width}));
  HEARTH_ASSIGN_OR_RETURN(t.gate, set.want(name("ffn_gate.weight"), {c.width, c.ffn_width}));
  HEARTH_ASSIGN_OR_RETURN(t.up, set.want(name("ffn_up.weight"), {c.width, c.ffn_width}));
  HEARTH_ASSIGN_OR_RETURN(t.gate_bias, set.want_if_present(name("ffn_gate.bias"), {c.ffn_width}));
  HEARTH_ASSIGN_OR_RETURN(t.up_bias, set.want_if_present(name("ffn_up.bias"), {c.ffn_width}));
  HEARTH_TRY(all_or_none({t.gate_bias, t.up_bias}));
  HEARTH_ASSIGN_OR_RETURN(t.down, set.want(name("ffn_down.weight"), {c.ffn_width, c.width}));
  HEARTH_ASSIGN_OR_RETURN(t.down_bias, set.want_if_present(name("ffn_down.bias"), {c.width}));
  // A buffer that early converters kept: the frequencies that metadata gives.
  set.ignore(name("attn_rot_embd"));
  set.ignore(name("attn_rot_embd.weight"));
  return t;
}

Result<Tensors> find_all(const GgufFile& file, const LlamaConfig& c) {
  TensorSet set(file);
  Tensors t{};
  const GgufTensor* embedding = file.find_tensor("token_embd.weight");
  const auto vocab_size = static_cast<int64_t>(embedding != nullptr ? embedding->dims[1] : 1);
  HEARTH_ASSIGN_OR_RETURN(t.embedding, set.want("token_embd.weight", {c.width, vocab_size}));
  if (vocab_size > INT32_MAX) {
    return Error{
        ErrorCode::kUnsupported,
        fmt::format("token_embd.weight: shape {}, want fewer than 2^31 rows", t.embedding->shape()),
        ""};
  }
  if (file.has("tokenizer.ggml.tokens")) {
    HEARTH_ASSIGN_OR_RETURN(const auto tokens, file.get<GgufStrings>("tokenizer.ggml.tokens"));
    if (tokens.size() != static_cast<size_t>(vocab_size)) {
      return Error{ErrorCode::kCorrupt,
                   fmt::format("token_embd.weight: shape {}, want a row for each of the {} tokens",
                               t.embedding->shape(), tokens.size()),
                   ""};
    }
  }
  HEARTH_ASSIGN_OR_RETURN(t.rope_divisors,
                          set.want_if_present("rope_freqs.weight", {c.rope.dim / 2}));
  for (int32_t i = 0; i < c.num_layers; ++i) {
    HEARTH_ASSIGN_OR_RETURN(const LayerTensors layer, find_layer(set, c, i));
    t.layers.push_back(layer);
  }
  HEARTH_ASSIGN_OR_RETURN(t.output_norm, set.want("output_norm.weight", {c.width}));
  HEARTH_ASSIGN_OR_RETURN(t.output, set.want_if_present("output.weight", {c.width, vocab_size}));
  HEARTH_TRY(set.check_all_used());
  return t;
}

// ---- Packing --------------------------------------------------------------------------------

class Packer {
 public:
  Packer(const GgufFile& file, const kernels::OpTable& ops, const LoadProgressFn& progress)
      : file_(file), ops_(ops), progress_(progress) {
    for (const GgufTensor& tensor : file.tensors()) state_.bytes_total += tensor.bytes.size();
  }

  // Joins the tensors into one weight; null where the (first) tensor is null.
  Result<LlamaWeights::Handle> pack(std::initializer_list<const GgufTensor*> tensors,
                                    WeightRole role) {
    std::vector<kernels::HostTensor> parts;
    for (const GgufTensor* tensor : tensors) {
      if (tensor == nullptr) return LlamaWeights::Handle();
      parts.push_back(host_tensor(*tensor));
    }
    HEARTH_ASSIGN_OR_RETURN(LlamaWeights::Handle weight, pack_parts(parts, role));
    for (const kernels::HostTensor& part : parts) {
      state_.bytes_done += part.bytes.size();
      file_.drop_pages(part.bytes);
    }
    return weight;
  }

  Result<LlamaWeights::Handle> pack_values(std::string_view name, std::span<const float> values) {
    kernels::HostTensor tensor;
    tensor.name = name;
    tensor.rows = 1;
    tensor.cols = static_cast<int64_t>(values.size());
    tensor.bytes = std::as_bytes(values);
    return pack_parts({&tensor, 1}, WeightRole::kVector);
  }

  void report() const {
    if (progress_) progress_(state_);
  }
  uint64_t device_bytes() const { return device_bytes_; }

 private:
  Result<LlamaWeights::Handle> pack_parts(std::span<const kernels::HostTensor> parts,
                                          WeightRole role) {
    HEARTH_ASSIGN_OR_RETURN(LlamaWeights::Handle weight,
                            ops_.pack_weights(ops_.state.get(), parts, role));
    device_bytes_ += weight->bytes;
    return weight;
  }

  const GgufFile& file_;
  const kernels::OpTable& ops_;
  const LoadProgressFn& progress_;
  LoadProgress state_;
  uint64_t device_bytes_ = 0;
};

Result<LlamaWeights::Layer> pack_layer(Packer& packer, const LayerTensors& t) {
  constexpr WeightRole kMatmul = WeightRole::kMatmul;
  constexpr WeightRole kVector = WeightRole::kVector;
  LlamaWeights::Layer w;
  HEARTH_ASSIGN_OR_RETURN(w.attn_norm, packer.pack({t.attn_norm}, kVector));
  HEARTH_ASSIGN_OR_RETURN(w.qkv, packer.pack({t.q, t.k, t.v}, kMatmul));
  HEARTH_ASSIGN_OR_RETURN(w.qkv_bias, packer.pack({t.q_bias, t.k_bias, t.v_bias}, kVector));
  HEARTH_ASSIGN_OR_RETURN(w.attn_out, packer.pack({t.attn_out}, kMatmul));
  HEARTH_ASSIGN_OR_RETURN(w.attn_bias, packer.pack({t.attn_bias}, kVector));
  HEARTH_ASSIGN_OR_RETURN(w.ffn_norm, packer.pack({t.ffn_norm}, kVector));
  HEARTH_ASSIGN_OR_RETURN(w.gate_up, packer.pack({t.gate, t.up}, kMatmul));
  HEARTH_ASSIGN_OR_RETURN(w.gate_up_bias, packer.pack({t.gate_bias, t.up_bias}, kVector));
  HEARTH_ASSIGN_OR_RETURN(w.down, packer.pack({t.down}, kMatmul));
  HEARTH_ASSIGN_OR_RETURN(w.down_bias, packer.pack({t.down_bias}, kVector));
  return w;
}

Result<std::vector<float>> read_divisors(const GgufTensor* tensor) {
  std::vector<float> values;
  if (tensor == nullptr) return values;
  if (*tensor->dtype != kernels::DType::kF32) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("{}: {}, want F32", tensor->name, tensor->type_name()), ""};
  }
  for (uint64_t i = 0; i < tensor->dims[0]; ++i) {
    const auto value = load_unaligned<float>(tensor->bytes.data() + i * sizeof(float));
    if (!std::isfinite(value) || value <= 0.0f) {
      return Error{
          ErrorCode::kCorrupt,
          fmt::format("{}: element {} is {}, want finite numbers above 0", tensor->name, i, value),
          ""};
    }
    values.push_back(value);
  }
  return values;
}

}  // namespace

Result<LlamaWeights> LlamaWeights::load(const GgufFile& file, const LlamaConfig& config,
                                        const kernels::OpTable& ops,
                                        const LoadProgressFn& progress) {
  HEARTH_ASSIGN_OR_RETURN(const Tensors tensors, find_all(file, config));
  HEARTH_ASSIGN_OR_RETURN(const std::vector<float> divisors, read_divisors(tensors.rope_divisors));

  Packer packer(file, ops, progress);
  LlamaWeights w;
  HEARTH_ASSIGN_OR_RETURN(
      w.rope_frequencies,
      packer.pack_values("rope frequencies", models::rope_frequencies(config.rope, divisors)));
  HEARTH_ASSIGN_OR_RETURN(w.embedding, packer.pack({tensors.embedding}, WeightRole::kEmbedding));
  packer.report();
  for (const LayerTensors& layer : tensors.layers) {
    HEARTH_ASSIGN_OR_RETURN(Layer packed, pack_layer(packer, layer));
    w.layers.push_back(std::move(packed));
    packer.report();
  }
  HEARTH_ASSIGN_OR_RETURN(w.output_norm, packer.pack({tensors.output_norm}, WeightRole::kVector));
  HEARTH_ASSIGN_OR_RETURN(w.output, packer.pack({tensors.output}, WeightRole::kMatmul));
  packer.report();
  w.bytes = packer.device_bytes();
  return w;
}

}  // namespace hearth::models
