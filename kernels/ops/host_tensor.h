#pragma once
// Tensors as op tables receive them to pack.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/ops/dtype.h"

namespace hearth::kernels {

/// Where a tensor's bytes come from, if they can be read again. They are valid while it is held.
class TensorSource {
 public:
  virtual ~TensorSource() = default;
  /// These bytes of it are not needed soon: they may leave this process's resident memory.
  virtual void drop_pages(std::span<const std::byte>) const {}
};

/// A 2-D tensor as stored in a file: `rows` outputs of `cols` inputs each, row after row.
/// Vectors have rows == 1; several are joined into one longer vector. A 3-D tensor of experts is
/// stored as one 2-D tensor, expert after expert: `num_experts` divides `rows`.
struct HostTensor {
  std::string_view name;
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  std::span<const std::byte> bytes;
  int32_t num_experts = 1;
  /// Keeps `bytes` valid while held. Null: `bytes` stays valid until pack_weights returns.
  std::shared_ptr<const TensorSource> owner = nullptr;
  /// Factors of the outputs (MatmulArgs), one for each expert; empty: 1. Read by pack_weights.
  std::vector<float> scales = {};
  /// Q8_0 alone: inputs from this magnitude on are not quantized (MatmulArgs); 0: all are.
  float outliers_from = 0;
  bool at_once = false;  ///< packed in pack_weights, although it has an owner
};

}  // namespace hearth::kernels
