#include "models/gguf/tensor_scales.h"

#include <fmt/core.h>

#include <cmath>
#include <string>

namespace hearth::models {
namespace {

using kernels::DType;

constexpr std::string_view kWeight = ".weight";
constexpr std::string_view kScale = ".scale";
constexpr std::string_view kInputScale = ".input_scale";

/// The tensor NAME + suffix of NAME.weight; null if it is not a scale of this weight.
const GgufTensor* scale_tensor(const GgufFile& file, const GgufTensor& weight,
                               std::string_view suffix) {
  std::string_view name = weight.name;
  if (weight.dtype != DType::kNVFP4 || !name.ends_with(kWeight)) return nullptr;
  name.remove_suffix(kWeight.size());
  const auto architecture =
      file.get_or<std::string_view>("general.architecture", std::string_view());
  // A part of the model in any type.
  const bool own = architecture.ok() && *architecture == "gemma4" &&
                   name.ends_with("ffn_down_exps") && suffix == kScale;
  return own ? nullptr : file.find_tensor(std::string(name) + std::string(suffix));
}

}  // namespace

Result<float> outliers_from(const GgufFile& file) {
  HEARTH_ASSIGN_OR_RETURN(const float from, file.get_or<float>(kOutliersFrom, 0.0f));
  const bool absent = file.find(kOutliersFrom) == nullptr;
  if (absent || (std::isfinite(from) && from > 0)) return from;
  return Error::corrupt(fmt::format("{}: {}, want a finite number above 0", kOutliersFrom, from));
}

Result<std::vector<float>> scales_of(const GgufFile& file, const GgufTensor& weight) {
  std::vector<float> scales;
  const GgufTensor* const tensor = scale_tensor(file, weight, kScale);
  if (tensor == nullptr) return scales;
  const uint64_t matrices = weight.dims[2] * weight.dims[3];
  if (tensor->dtype != DType::kF32 || tensor->num_elements() != matrices) {
    return Error::unsupported(fmt::format("{}: {} of shape {}, want {} of F32",
                                          printable(tensor->name), tensor->type_name(),
                                          tensor->shape(), matrices));
  }
  for (uint64_t i = 0; i < matrices; ++i) {
    scales.push_back(load_unaligned<float>(tensor->bytes.data() + i * sizeof(float)));
    if (std::isfinite(scales.back())) continue;
    return Error::corrupt(fmt::format("{}: element {} is {}, want finite numbers",
                                      printable(tensor->name), i, scales.back()));
  }
  return scales;
}

std::unordered_set<std::string_view> scale_names(const GgufFile& file) {
  std::unordered_set<std::string_view> names;
  for (const GgufTensor& weight : file.tensors()) {
    for (const std::string_view suffix : {kScale, kInputScale}) {
      const GgufTensor* const tensor = scale_tensor(file, weight, suffix);
      if (tensor != nullptr) names.insert(tensor->name);
    }
  }
  return names;
}

}  // namespace hearth::models
