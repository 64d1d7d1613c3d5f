#include "models/quantize/tensor_scales.h"

#include <fmt/core.h>

#include <cmath>
#include <string>

namespace hearth::models {
namespace {

using kernels::DType;

constexpr std::string_view kScale = ".scale";
constexpr std::string_view kInputScale = ".input_scale";

}  // namespace

Result<TensorScales> TensorScales::find(const GgufFile& file) {
  TensorScales out;
  const auto architecture =
      file.get_or<std::string_view>("general.architecture", std::string_view());
  for (const GgufTensor& tensor : file.tensors()) {
    const std::string_view name = tensor.name;
    const bool of_input = name.ends_with(kInputScale);
    if (!of_input && !name.ends_with(kScale)) continue;
    const size_t end = name.size() - (of_input ? kInputScale : kScale).size();
    const GgufTensor* weight = file.find_tensor(std::string(name.substr(0, end)) + ".weight");
    if (weight == nullptr || weight->dtype != DType::kNVFP4) continue;
    // A part of the model in any type.
    const bool own =
        architecture.ok() && *architecture == "gemma4" && name.ends_with("ffn_down_exps.scale");
    if (own) continue;
    out.scales_.insert(name);
    if (of_input) continue;
    const uint64_t matrices = weight->dims[2] * weight->dims[3];
    if (tensor.dtype != DType::kF32 || tensor.num_elements() != matrices) {
      return Error::unsupported(fmt::format("{}: {} of shape {}, want {} of F32", printable(name),
                                            tensor.type_name(), tensor.shape(), matrices));
    }
    std::vector<float>& scales = out.of_weight_[weight->name];
    for (uint64_t i = 0; i < matrices; ++i) {
      scales.push_back(load_unaligned<float>(tensor.bytes.data() + i * sizeof(float)));
      if (std::isfinite(scales.back())) continue;
      return Error::corrupt(fmt::format("{}: element {} is {}, want finite numbers",
                                        printable(name), i, scales.back()));
    }
  }
  return out;
}

float TensorScales::of(std::string_view weight, uint64_t index) const {
  const auto found = of_weight_.find(weight);
  return found != of_weight_.end() ? found->second[index] : 1.0f;
}

}  // namespace hearth::models
