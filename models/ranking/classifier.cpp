#include "models/ranking/classifier.h"

#include <fmt/core.h>

#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include "kernels/ops/checks.h"
#include "kernels/quant/quant_types.h"
#include "models/gguf/gguf_file.h"
#include "models/weights/tensor_set.h"

namespace hearth::models {
namespace {

std::vector<float> values_of(const GgufTensor& tensor) {
  kernels::HostTensor host = host_tensor(tensor);
  if (kernels::info(host.dtype).block_elements == 1) {
    host.cols *= std::exchange(host.rows, 1);
    return kernels::vector_values(std::span(&host, 1));
  }
  std::vector<float> out(host.rows * host.cols);
  kernels::dequantize(host.dtype, host.bytes, out);
  return out;
}

}  // namespace

std::vector<double> Classifier::Product::times(std::span<const double> x) const {
  std::vector<double> out(weight.size() / x.size());
  for (size_t r = 0; r < out.size(); ++r) {
    double sum = bias.empty() ? 0 : bias[r];
    for (size_t c = 0; c < x.size(); ++c) sum += double{weight[r * x.size() + c]} * x[c];
    out[r] = sum;
  }
  return out;
}

Result<Classifier> Classifier::load(const GgufFile& file) {
  HEARTH_ASSIGN_OR_RETURN(const auto architecture,
                          file.get<std::string_view>("general.architecture"));
  TensorSet set(file);
  HEARTH_ASSIGN_OR_RETURN(const auto width,
                          file.get<uint32_t>(fmt::format("{}.embedding_length", architecture)));
  const GgufTensor* const head = file.find_tensor("cls.output.weight");
  if (head == nullptr) {
    return Error::unsupported(
        "cls.output.weight: missing, so the file's pooling (rank) has no classifier");
  }
  if (head->dims[1] != 1 && head->dims[1] != 2) {
    return Error::unsupported(
        fmt::format("cls.output.weight: {} labels, want 1, or 2 with a \"yes\"", head->dims[1]));
  }
  const int64_t labels = head->dims[1] == 1 ? 1 : 2;
  HEARTH_ASSIGN_OR_RETURN(const GgufTensor* out, set.want("cls.output.weight", {width, labels}));
  HEARTH_ASSIGN_OR_RETURN(const GgufTensor* out_bias,
                          set.want_if_present("cls.output.bias", {labels}));
  HEARTH_ASSIGN_OR_RETURN(const GgufTensor* dense,
                          set.want_if_present("cls.weight", {width, width}));
  HEARTH_ASSIGN_OR_RETURN(const GgufTensor* bias, set.want_if_present("cls.bias", {width}));
  if (file.find_tensor("cls.norm.weight") != nullptr) {
    return Error::unsupported("cls.norm.weight: a norm in the classifier is not supported");
  }
  Classifier made;
  made.out_.weight = values_of(*out);
  if (out_bias != nullptr) made.out_.bias = values_of(*out_bias);
  if (dense != nullptr) {
    made.dense_ = Product{.weight = values_of(*dense), .bias = {}};
    if (bias != nullptr) made.dense_->bias = values_of(*bias);
  }
  if (labels == 1) return made;
  const std::string key = fmt::format("{}.classifier.output_labels", architecture);
  if (file.has(key)) {
    HEARTH_ASSIGN_OR_RETURN(const auto names, file.get<GgufStrings>(key));
    for (const std::string_view name : names) {
      if (name == "yes" && made.yes_ < 2) return made;
      ++made.yes_;
    }
  }
  return Error::unsupported(fmt::format("{}: want two labels, one of them \"yes\"", key));
}

float Classifier::score(std::span<const float> row, bool as_chance) const {
  std::vector<double> x(row.begin(), row.end());
  if (dense_) {
    x = dense_->times(x);
    for (double& value : x) value = std::tanh(value);
  }
  const std::vector<double> labels = out_.times(x);
  const double score = labels.size() == 1 ? labels[0] : labels[yes_] - labels[1 - yes_];
  return static_cast<float>(as_chance ? 1 / (1 + std::exp(-score)) : score);
}

}  // namespace hearth::models
