#include "models/weights/weight_packer.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "kernels/base/numbers.h"
#include "kernels/base/sizes.h"
#include "models/gguf/tensor_scales.h"
#include "models/weights/coarse_rows.h"
#include "models/weights/tensor_set.h"

namespace hearth::models {

using kernels::WeightRole;

namespace {

/// Part of the names of tensors of experts.
constexpr std::string_view kExperts = "_exps";

}  // namespace

WeightPacker::WeightPacker(const GgufFile& file, const kernels::OpTable& ops,
                           const LoadProgressFn& progress, const kernels::OpTable* experts)
    : file_(file), ops_(&ops), experts_(experts), progress_(progress) {
  uint64_t expert_bytes = 0;
  for (const GgufTensor& tensor : file.tensors()) {
    state_.bytes_total += tensor.bytes.size();
    if (tensor.name.find(kExperts) != tensor.name.npos) expert_bytes += tensor.bytes.size();
  }
  if (ops.most_packed_bytes == UINT64_MAX) return;
  // A token reads few of the experts, so they stay in the file first.
  left_bytes_ = std::min(ops.most_packed_bytes, state_.bytes_total - expert_bytes);
  left_expert_bytes_ = ops.most_packed_bytes - left_bytes_;
}

bool WeightPacker::stays_in_file(uint64_t bytes, WeightRole role) {
  if (role == WeightRole::kVector) return false;
  uint64_t& left = role == WeightRole::kExperts ? left_expert_bytes_ : left_bytes_;
  if (left == UINT64_MAX) return false;
  if (bytes > left) return true;
  left -= bytes;
  return false;
}

Result<WeightHandle> WeightPacker::pack(std::initializer_list<const GgufTensor*> tensors,
                                        WeightRole role) {
  std::vector<kernels::HostTensor> parts;
  uint64_t bytes = 0;
  for (const GgufTensor* tensor : tensors) {
    if (tensor == nullptr) return WeightHandle();
    bytes += tensor->bytes.size();
  }
  const bool some = role == WeightRole::kExperts && !chosen_.empty();
  const bool stays = !some && stays_in_file(bytes, role);
  std::vector<std::vector<std::byte>> copies;
  for (const GgufTensor* tensor : tensors) {
    HEARTH_ASSIGN_OR_RETURN(parts.emplace_back(), part_of(*tensor, role));
    if (role == WeightRole::kExperts) {
      parts.back().num_experts = narrow<int32_t>(tensor->dims[2]);
    }
    if (some) {
      copies.push_back(choose(&parts.back()));
    } else if (role != WeightRole::kVector) {
      set_owner(tensor->bytes, stays, &parts.back());
    }
  }
  HEARTH_ASSIGN_OR_RETURN(WeightHandle weight, pack_parts(parts, role));
  if (some) return weight;  // the file's bytes were counted with all experts
  int64_t first_row = 0;
  for (const kernels::HostTensor& part : parts) {
    const bool matrix = role == WeightRole::kMatmul;
    parts_[std::string(part.name)] = {matrix ? weight.get() : nullptr, first_row, part.rows,
                                      part.cols};
    first_row += part.rows;
    state_.bytes_done += part.bytes.size();
    if (part.owner == nullptr) file_.drop_pages(part.bytes);
  }
  return weight;
}

/// Replaces the tensor of all experts by one of those chosen, whose bytes are returned.
std::vector<std::byte> WeightPacker::choose(kernels::HostTensor* part) const {
  const int32_t all = part->num_experts;
  const size_t size = part->bytes.size() / all;
  std::vector<std::byte> bytes;
  std::vector<float> scales;
  for (const int32_t expert : chosen_) {
    const auto from = part->bytes.subspan(expert * size, size);
    bytes.insert(bytes.end(), from.begin(), from.end());
    if (std::cmp_equal(part->scales.size(), all)) scales.push_back(part->scales[expert]);
  }
  if (!scales.empty()) part->scales = std::move(scales);
  part->num_experts = size32(chosen_);
  part->rows = part->rows / all * part->num_experts;
  part->bytes = bytes;
  return bytes;  // moved: the view stays valid
}

/// With what the file has for its products.
Result<kernels::HostTensor> WeightPacker::part_of(const GgufTensor& tensor, WeightRole role) const {
  kernels::HostTensor part = host_tensor(tensor);
  if (role == WeightRole::kVector) return part;
  HEARTH_ASSIGN_OR_RETURN(part.scales, scales_of(file_, tensor));
  const bool multiplied = role == WeightRole::kMatmul || role == WeightRole::kExperts;
  if (multiplied && part.dtype == kernels::DType::kQ8_0) {
    HEARTH_ASSIGN_OR_RETURN(part.outliers_from, outliers_from(file_));
  }
  return part;
}

// Without an owner the table packs the tensor for good. What a disk would have to be waited for is
// packed at once, front to back.
void WeightPacker::set_owner(std::span<const std::byte> bytes, bool stays,
                             kernels::HostTensor* part) const {
  const bool late = ops_->pack_more != nullptr && ops_->most_packed_bytes == UINT64_MAX;
  if (!stays && !late) return;
  part->owner = file_.keep_mapped(bytes);
  part->at_once = !stays && !file_.is_cached(bytes);
}

Result<WeightHandle> WeightPacker::pack_front(const GgufTensor& tensor, int64_t rows,
                                              WeightRole role, bool coarse) {
  HEARTH_ASSIGN_OR_RETURN(kernels::HostTensor part, part_of(tensor, role));
  part.bytes = tensor.bytes.first(tensor.bytes.size() / part.rows * rows);
  part.rows = rows;
  constexpr kernels::DType kCoarse = kernels::DType::kQ4_0;
  if (coarse && can_be_coarser(part.dtype, part.cols) &&
      !stays_in_file(kernels::bytes_of(kCoarse, rows * part.cols), role)) {
    const std::vector<std::byte> bytes = coarse_rows(part.dtype, part.bytes);
    part.dtype = kCoarse;
    part.bytes = bytes;
    part.outliers_from = 0;
    return pack_parts({&part, 1}, role);
  }
  set_owner(part.bytes, stays_in_file(part.bytes.size(), role), &part);
  return pack_parts({&part, 1}, role);
}

Result<std::vector<WeightHandle>> WeightPacker::pack_slices(const GgufTensor& tensor,
                                                            WeightRole role) {
  std::vector<WeightHandle> slices;
  HEARTH_ASSIGN_OR_RETURN(kernels::HostTensor part, part_of(tensor, role));
  const std::vector<float> scales = std::move(part.scales);
  const auto count = narrow<int64_t>(tensor.dims[2]);
  const size_t bytes = tensor.bytes.size() / tensor.dims[2];
  part.rows /= count;
  set_owner(tensor.bytes, stays_in_file(tensor.bytes.size(), role), &part);
  for (int64_t i = 0; i < count; ++i) {
    part.bytes = tensor.bytes.subspan(i * bytes, bytes);
    if (!scales.empty()) part.scales = {scales[i]};
    HEARTH_ASSIGN_OR_RETURN(WeightHandle slice, pack_parts({&part, 1}, role));
    slices.push_back(std::move(slice));
  }
  state_.bytes_done += tensor.bytes.size();
  if (part.owner == nullptr) file_.drop_pages(tensor.bytes);
  return slices;
}

Result<WeightHandle> WeightPacker::pack_biases(std::initializer_list<const GgufTensor*> tensors) {
  std::vector<float> values;
  if (*tensors.begin() == nullptr) return WeightHandle();
  std::vector<int32_t> experts(chosen_.begin(), chosen_.end());
  if (experts.empty()) {
    experts.resize((*tensors.begin())->dims[1]);
    std::iota(experts.begin(), experts.end(), 0);
  }
  for (const GgufTensor* tensor : tensors) {
    if (*tensor->dtype == kernels::DType::kF32) continue;
    return Error::unsupported(fmt::format("{}: {}, want F32", tensor->name, tensor->type_name()));
  }
  for (const int32_t e : experts) {
    for (const GgufTensor* tensor : tensors) {
      const uint64_t width = tensor->dims[0];
      for (uint64_t i = 0; i < width; ++i) {
        values.push_back(
            load_unaligned<float>(tensor->bytes.data() + (e * width + i) * sizeof(float)));
      }
    }
  }
  for (const GgufTensor* tensor : tensors) {
    if (chosen_.empty()) state_.bytes_done += tensor->bytes.size();
  }
  return pack_values((*tensors.begin())->name, values);
}

Result<WeightHandle> WeightPacker::pack_values(std::string_view name,
                                               std::span<const float> values) {
  if (values.empty()) return WeightHandle();
  kernels::HostTensor tensor;
  tensor.name = name;
  tensor.rows = 1;
  tensor.cols = values.size();
  tensor.bytes = std::as_bytes(values);
  return pack_parts({&tensor, 1}, WeightRole::kVector);
}

Result<WeightHandle> WeightPacker::pack_parts(std::span<const kernels::HostTensor> parts,
                                              WeightRole role) {
  HEARTH_ASSIGN_OR_RETURN(WeightHandle weight, ops_->pack_weights(ops_->state.get(), parts, role));
  device_bytes_ += weight->bytes;
  return weight;
}

void WeightPacker::report() const {
  if (progress_) progress_(state_);
}

Result<std::vector<float>> f32_values(const GgufTensor& tensor) {
  if (*tensor.dtype != kernels::DType::kF32) {
    return Error::unsupported(fmt::format("{}: {}, want F32", tensor.name, tensor.type_name()));
  }
  std::vector<float> values;
  for (size_t at = 0; at + sizeof(float) <= tensor.bytes.size(); at += sizeof(float)) {
    values.push_back(load_unaligned<float>(tensor.bytes.data() + at));
    if (std::isfinite(values.back())) continue;
    return Error::corrupt(fmt::format("{}: element {} is {}, want finite numbers", tensor.name,
                                      values.size() - 1, values.back()));
  }
  return values;
}

Result<std::vector<float>> positive_values(const GgufTensor* tensor) {
  std::vector<float> values;
  if (tensor == nullptr) return values;
  HEARTH_ASSIGN_OR_RETURN(values, f32_values(*tensor));
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] > 0.0f) continue;
    return Error::corrupt(fmt::format("{}: element {} is {}, want finite numbers above 0",
                                      tensor->name, i, values[i]));
  }
  return values;
}

Result<float> scale_value(const GgufTensor* tensor) {
  if (tensor == nullptr) return 1.0f;
  HEARTH_ASSIGN_OR_RETURN(const std::vector<float> values, f32_values(*tensor));
  return values.front();
}

}  // namespace hearth::models
