#pragma once
// The tensors of a file as a family requests them: each by name and shape. A tensor that was never
// requested is an error, because a model that ignores a tensor computes something other than its
// author intended.

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "kernels/base/result.h"
#include "kernels/ops.h"
#include "models/gguf/gguf_file.h"

namespace hearth::models {

class TensorSet {
 public:
  /// `file` outlives the set and what it returns. Scales of weights (tensor_scales.h) are used.
  explicit TensorSet(const GgufFile& file);

  /// The tensor of that name, checked to have these dimensions (contiguous one first) and a type
  /// that hearth computes with. kCorrupt: missing, or "blk.0.attn_q.weight: shape [2048,2048], want
  /// [4096,2048]". kUnsupported: its type. Marks the tensor as used.
  Result<const GgufTensor*> want(std::string_view name, std::initializer_list<int64_t> dims);
  /// The same; null if the file has none of that name.
  Result<const GgufTensor*> want_if_present(std::string_view name,
                                            std::initializer_list<int64_t> dims);
  /// Does not mark it as used.
  bool has(std::string_view name) const { return file_.find_tensor(name) != nullptr; }
  /// Marks a tensor as known and not needed.
  void ignore(std::string_view name);
  /// The same for all tensors whose names begin so.
  void ignore_all(std::string_view prefix);
  /// kUnsupported, naming the first tensor that was not requested.
  Result<void> check_all_used() const;

 private:
  const GgufFile& file_;
  std::vector<bool> used_;  // by position in file_.tensors()
};

/// The tensor as pack_weights takes it; it views the file's bytes.
kernels::HostTensor host_tensor(const GgufTensor& tensor);

}  // namespace hearth::models
