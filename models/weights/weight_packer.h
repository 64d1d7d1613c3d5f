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
  /// All outlive the packer. `experts`: the table for pack_on_experts; null: `ops`.
  WeightPacker(const GgufFile& file, const kernels::OpTable& ops, const LoadProgressFn& progress,
               const kernels::OpTable* experts = nullptr);

  /// Calls `pack`, whose weights go to the table of the experts.
  template <typename Pack>
  Result<void> pack_on_experts(const Pack& pack) {
    if (experts_ == nullptr) return pack();
    std::swap(ops_, experts_);
    std::swap(device_bytes_, expert_bytes_);
    Result<void> packed = pack();
    std::swap(ops_, experts_);
    std::swap(device_bytes_, expert_bytes_);
    return packed;
  }

  /// Joins the tensors into one weight; null if one of them is null. Role kExperts: their last
  /// dimension counts experts.
  Result<WeightHandle> pack(std::initializer_list<const GgufTensor*> tensors,
                            kernels::WeightRole role);
  /// Calls `pack`, whose pack(kExperts) and pack_biases take these experts alone, in this order, as
  /// copies of their bytes.
  template <typename Pack>
  Result<void> pack_chosen(std::span<const int32_t> experts, const Pack& pack) {
    chosen_ = experts;
    Result<void> packed = pack();
    chosen_ = {};
    return packed;
  }
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
  uint64_t expert_bytes() const { return expert_bytes_; }  ///< on their table, if it is another
  /// Of all tensors that pack() was given.
  MatrixParts take_parts() { return std::move(parts_); }

 private:
  Result<kernels::HostTensor> part_of(const GgufTensor& tensor, kernels::WeightRole role) const;
  void set_owner(std::span<const std::byte> bytes, bool stays, kernels::HostTensor* part) const;
  std::vector<std::byte> choose(kernels::HostTensor* part) const;
  bool stays_in_file(uint64_t bytes, kernels::WeightRole role);
  Result<WeightHandle> pack_parts(std::span<const kernels::HostTensor> parts,
                                  kernels::WeightRole role);

  const GgufFile& file_;
  const kernels::OpTable* ops_;
  const kernels::OpTable* experts_;  ///< null: ops_
  const LoadProgressFn& progress_;
  LoadProgress state_;
  // What is packed at most, in bytes of the file: of the matrices that every token reads, and of
  // the experts.
  uint64_t left_bytes_ = UINT64_MAX;
  uint64_t left_expert_bytes_ = UINT64_MAX;
  uint64_t device_bytes_ = 0;
  uint64_t expert_bytes_ = 0;
  std::span<const int32_t> chosen_;  ///< empty: all experts
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
