#include "models/quantize/mix.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

namespace hearth::models {
namespace {

using kernels::DType;

constexpr Mix kMixes[] = {
    {"F32", DType::kF32, 0},        {"F16", DType::kF16, 1},      {"BF16", DType::kBF16, 32},
    {"Q8_0", DType::kQ8_0, 7},      {"Q6_K", DType::kQ6_K, 18},   {"Q5_K_M", DType::kQ5_K, 17},
    {"Q5_K_S", DType::kQ5_K, 16},   {"Q4_K_M", DType::kQ4_K, 15}, {"Q4_K_S", DType::kQ4_K, 14},
    {"Q3_K_L", DType::kQ3_K, 13},   {"Q3_K_M", DType::kQ3_K, 12}, {"Q3_K_S", DType::kQ3_K, 11},
    {"Q2_K", DType::kQ2_K, 10},     {"Q5_1", DType::kQ5_1, 9},    {"Q5_0", DType::kQ5_0, 8},
    {"Q4_1", DType::kQ4_1, 3},      {"Q4_0", DType::kQ4_0, 2},    {"IQ4_NL", DType::kIQ4_NL, 25},
    {"IQ4_XS", DType::kIQ4_XS, 30}, {"MXFP4", DType::kMXFP4, 38},
};

bool ends_with_one_of(std::string_view name, std::initializer_list<std::string_view> ends) {
  return std::ranges::any_of(ends, [&](std::string_view end) { return name.ends_with(end); });
}

/// The first and last eighth of the layers, and every third between.
bool is_telling_layer(int32_t layer, int32_t count) {
  return layer < count / 8 || layer >= 7 * count / 8 || (layer - count / 8) % 3 == 2;
}

/// The type of a tensor inside a layer.
DType in_layer(const Mix& mix, const MixModel& model, std::string_view name, int32_t layer) {
  const bool v = name.ends_with(".attn_v.weight");
  const bool down = ends_with_one_of(name, {".ffn_down.weight", ".ffn_down_exps.weight"});
  const bool qkv = name.ends_with(".attn_qkv.weight");
  const bool out = name.ends_with(".attn_output.weight");
  const bool telling = is_telling_layer(layer, model.num_layers);
  // With eight experts the shared attention weights are a small part of the model and worth more
  // bits.
  const bool coarse = kernels::info(mix.base).block_elements == 256 && mix.base != DType::kQ6_K;
  if (model.num_experts == 8 && coarse && (v || name.ends_with(".attn_k.weight"))) {
    return DType::kQ8_0;
  }
  if (mix.name == "Q5_K_M") return qkv || ((v || down) && telling) ? DType::kQ6_K : mix.base;
  if (mix.name == "Q4_K_M") {
    return qkv ? DType::kQ5_K : (v || down) && telling ? DType::kQ6_K : mix.base;
  }
  if (mix.name == "Q4_K_S") {
    return (v && layer < 4) || (down && layer < model.num_layers / 8) ? DType::kQ5_K : mix.base;
  }
  if (mix.name == "Q3_K_L") return v || down || out || qkv ? DType::kQ5_K : mix.base;
  if (mix.name == "Q3_K_M") {
    if (v) return layer < 2 ? DType::kQ5_K : DType::kQ4_K;
    if (down) return layer < model.num_layers / 16 ? DType::kQ5_K : DType::kQ4_K;
    return out || qkv ? DType::kQ4_K : mix.base;
  }
  if (mix.name == "Q2_K") {
    if (v) return model.heads_per_kv_head >= 4 ? DType::kQ4_K : DType::kQ3_K;
    return down || out || qkv ? DType::kQ3_K : mix.base;
  }
  return mix.base;
}

/// A type with blocks of 32 values and about as many bits per value.
DType in_small_blocks(DType type) {
  switch (type) {
    case DType::kQ2_K:
    case DType::kQ3_K: return DType::kQ4_0;
    case DType::kIQ4_XS: return DType::kIQ4_NL;
    case DType::kQ4_K: return DType::kQ5_0;
    case DType::kQ5_K: return DType::kQ5_1;
    case DType::kQ6_K: return DType::kQ8_0;
    default: return type;
  }
}

bool divides(DType type, uint64_t cols) { return cols % kernels::info(type).block_elements == 0; }

/// RWKV's pairs of small products and their biases: "time_mix_w1.weight".
bool is_time_mix_pair(std::string_view name) {
  constexpr std::string_view kPart = ".time_mix_", kUsual = "w1.weight";
  const size_t at = name.find(kPart);
  return at != name.npos && name.size() == at + kPart.size() + kUsual.size();
}

bool is_matrix_to_store_anew(const GgufTensor& tensor) {
  const std::string_view name = tensor.name;
  return tensor.num_dims >= 2 && name.ends_with(".weight") && name.find("norm") == name.npos &&
         name.find("altup") == name.npos && name.find("laurel") == name.npos &&
         name != "per_layer_model_proj.weight" && !is_time_mix_pair(name) &&
         !ends_with_one_of(
             name, {".ffn_gate_inp.weight", ".ffn_gate_inp_shexp.weight", ".ssm_conv1d.weight",
                    ".time_mix_lerp_fused.weight", "position_embd.weight", "token_types.weight"});
}

}  // namespace

std::optional<int32_t> layer_of(std::string_view name) {
  if (!name.starts_with("blk.")) return {};
  int32_t layer = 0;
  const auto [end, problem] = std::from_chars(name.data() + 4, name.data() + name.size(), layer);
  if (problem != std::errc()) return {};
  return layer;
}

std::span<const Mix> mixes() { return kMixes; }

Result<Mix> find_mix(std::string_view name) {
  std::string known;
  for (const Mix& mix : kMixes) {
    const bool same = std::ranges::equal(
        mix.name, name, [](char a, char b) { return a == (b >= 'a' && b <= 'z' ? b - 32 : b); });
    if (same) return mix;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", mix.name);
  }
  return Error::unsupported(fmt::format("type {}: want one of {}", printable(name), known), "type");
}

MixModel MixModel::of(const GgufFile& file) {
  MixModel out;
  const auto architecture = file.get<std::string_view>("general.architecture");
  if (architecture.ok()) {
    const std::string prefix = std::string(architecture.value()) + ".";
    const auto number = [&](const char* key) {
      const auto value = file.get<int32_t>(prefix + key);
      return value.ok() ? value.value() : 0;
    };
    out.num_layers = number("block_count");
    out.num_draft_layers = number("nextn_predict_layers");
    out.num_experts = number("expert_count");
    const int32_t heads = number("attention.head_count");
    const int32_t kv_heads = number("attention.head_count_kv");
    if (kv_heads > 0) out.heads_per_kv_head = heads / kv_heads;
  }
  out.tied = file.find_tensor("output.weight") == nullptr;
  return out;
}

DType choose_type(const Mix& mix, const MixModel& model, const GgufTensor& tensor) {
  const DType stored = tensor.dtype.value_or(DType::kF32);
  if (!is_matrix_to_store_anew(tensor)) return stored;
  DType type = mix.base;
  const bool plain = kernels::info(mix.base).block_elements == 1;
  const bool head =
      tensor.name == "output.weight" || (model.tied && tensor.name == "token_embd.weight");
  if (head) {
    if (!plain && mix.base != DType::kQ8_0) type = DType::kQ6_K;
  } else if (const auto layer = layer_of(tensor.name)) {
    type = in_layer(mix, model, tensor.name, *layer);
  }
  if (!divides(type, tensor.dims[0])) type = in_small_blocks(type);
  return divides(type, tensor.dims[0]) ? type : DType::kF16;
}

}  // namespace hearth::models
