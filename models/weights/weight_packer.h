#pragma once
// Loads a file's tensors into a device one after another: counts bytes, reports progress, and
// releases the file's pages as it goes.

#include <initializer_list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/base/result.h"
#include "kernels/ops.h"
#include "models/gguf/gguf_file.h"
#include "models/model.h"

namespace hearth::models {

using WeightHandle = std::unique_ptr<kernels::Weight>;

/// Where a tensor of the file is: rows of a weight that matmul reads.
struct MatrixPart {
  const kernels::Weight* weight = nullptr;  ///< null: of another role
  int64_t first_row = 0;
  int64_t rows = 0;
  int64_t cols = 0;
};
/// By the tensors' names.
using MatrixParts = std::map<std::string, MatrixPart, std::less<>>;

class WeightPacker {
 public:
  /// All three outlive the packer.
  WeightPacker(const GgufFile& file, const kernels::OpTable& ops, const LoadProgressFn& progress);

  /// Joins the tensors into one weight; null if one of them is null. Role kExperts: their last
  /// dimension counts experts.
  Result<WeightHandle> pack(std::initializer_list<const GgufTensor*> tensors,
                            kernels::WeightRole role);
  /// The first `rows` rows of a matrix. `coarse`: in fewer bits than the file's, if it has many
  /// (coarse_rows.h).
  Result<WeightHandle> pack_front(const GgufTensor& tensor, int64_t rows, kernels::WeightRole role,
                                  bool coarse);
  /// Each matrix of a tensor of three dimensions as a weight of its own.
  Result<std::vector<WeightHandle>> pack_slices(const GgufTensor& tensor, kernels::WeightRole role);
  /// Joins vectors of experts, (experts, width) each, expert by expert; null if one of them is
  /// null.
  Result<WeightHandle> pack_biases(std::initializer_list<const GgufTensor*> tensors);
  /// Packs a computed vector; null if `values` is empty.
  Result<WeightHandle> pack_values(std::string_view name, std::span<const float> values);

  void report() const;
  uint64_t device_bytes() const { return device_bytes_; }
  /// Of all tensors that pack() was given.
  MatrixParts take_parts() { return std::move(parts_); }

 private:
  Result<kernels::HostTensor> part_of(const GgufTensor& tensor, kernels::WeightRole role) const;
  void set_owner(std::span<const std::byte> bytes, bool stays, kernels::HostTensor* part) const;
  bool stays_in_file(uint64_t bytes, kernels::WeightRole role);
  Result<WeightHandle> pack_parts(std::span<const kernels::HostTensor> parts,
                                  kernels::WeightRole role);

  const GgufFile& file_;
  const kernels::OpTable& ops_;
  const LoadProgressFn& progress_;
  LoadProgress state_;
  // What is packed at most, in bytes of the file: of the matrices that every token reads, and of
  // the experts.
  uint64_t left_bytes_ = UINT64_MAX;
  uint64_t left_expert_bytes_ = UINT64_MAX;
  uint64_t device_bytes_ = 0;
  MatrixParts parts_;
};

/// The values of an F32 vector whose elements have to be finite and above 0, such as divisors of
/// frequencies; empty if `tensor` is null. kUnsupported, kCorrupt name the tensor.
Result<std::vector<float>> positive_values(const GgufTensor* tensor);

/// The values of an F32 tensor, which have to be finite. kUnsupported, kCorrupt name the tensor.
Result<std::vector<float>> f32_values(const GgufTensor& tensor);

/// The value of an F32 vector of one element, which has to be finite; 1 if `tensor` is null.
Result<float> scale_value(const GgufTensor* tensor);

}  // namespace hearth::models
