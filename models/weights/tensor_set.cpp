#include "models/weights/tensor_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "models/gguf/tensor_scales.h"

namespace hearth::models {
namespace {

bool has_shape(const GgufTensor& tensor, std::initializer_list<int64_t> dims) {
  size_t d = 0;
  for (const int64_t dim : dims) {
    if (std::cmp_not_equal(tensor.dims[d++], dim)) return false;
  }
  return std::all_of(tensor.dims.begin() + d, tensor.dims.end(), [](uint64_t n) { return n == 1; });
}

}  // namespace

TensorSet::TensorSet(const GgufFile& file) : file_(file), used_(file.tensors().size(), false) {
  for (const std::string_view name : scale_names(file)) ignore(name);
}

Result<const GgufTensor*> TensorSet::want(std::string_view name,
                                          std::initializer_list<int64_t> dims) {
  HEARTH_ASSIGN_OR_RETURN(const GgufTensor* tensor, want_if_present(name, dims));
  if (tensor != nullptr) return tensor;
  return Error::corrupt(fmt::format("{}: missing, want shape [{}]", name, fmt::join(dims, ",")));
}

Result<const GgufTensor*> TensorSet::want_if_present(std::string_view name,
                                                     std::initializer_list<int64_t> dims) {
  const GgufTensor* tensor = file_.find_tensor(name);
  if (tensor == nullptr) return tensor;
  ignore(name);
  if (!has_shape(*tensor, dims)) {
    return Error::corrupt(
        fmt::format("{}: shape {}, want [{}]", name, tensor->shape(), fmt::join(dims, ",")));
  }
  const bool is_vector = dims.size() == 1;
  if (!tensor->dtype || !kernels::info(*tensor->dtype).usable_as_weight ||
      (is_vector && kernels::info(*tensor->dtype).block_elements != 1)) {
    return Error::unsupported(fmt::format("{}: {}, which this build cannot compute with{}", name,
                                          tensor->type_name(), is_vector ? " in a vector" : ""));
  }
  return tensor;
}

void TensorSet::ignore(std::string_view name) {
  const GgufTensor* tensor = file_.find_tensor(name);
  if (tensor != nullptr) used_[tensor - file_.tensors().data()] = true;
}

void TensorSet::ignore_all(std::string_view prefix) {
  for (const GgufTensor& tensor : file_.tensors()) {
    if (tensor.name.starts_with(prefix)) used_[&tensor - file_.tensors().data()] = true;
  }
}

Result<void> TensorSet::check_all_used() const {
  const auto unused = std::find(used_.begin(), used_.end(), false);
  if (unused == used_.end()) return {};
  const GgufTensor& tensor = file_.tensors()[unused - used_.begin()];
  return Error::unsupported(
      fmt::format("{}: a tensor of shape {} that this architecture has no place for",
                  printable(tensor.name), tensor.shape()));
}

kernels::HostTensor host_tensor(const GgufTensor& tensor) {
  kernels::HostTensor out;
  out.name = tensor.name;
  out.dtype = *tensor.dtype;
  out.cols = tensor.dims[0];
  out.rows = tensor.num_elements() / tensor.dims[0];
  out.bytes = tensor.bytes;
  return out;
}

}  // namespace hearth::models
