#pragma once
// Scales of whole matrices, as published NVFP4 has them: NAME.scale next to NAME.weight, one for
// each expert. NAME.input_scale is for products whose other factor is NVFP4, too, and is not
// needed.

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "kernels/base/result.h"
#include "models/gguf/gguf_file.h"

namespace hearth::models {

/// Views the file, which outlives it.
class TensorScales {
 public:
  /// kCorrupt, kUnsupported name a scale of another type or size, or one that is not finite.
  static Result<TensorScales> find(const GgufFile& file);

  /// Whether the tensor is such a scale, which its weight takes in when it is written in another
  /// type.
  bool is_scale(std::string_view tensor) const { return scales_.contains(tensor); }
  /// The scale of matrix `index` of a weight; 1 if it has none.
  float of(std::string_view weight, uint64_t index) const;

 private:
  std::unordered_set<std::string_view> scales_;
  std::unordered_map<std::string_view, std::vector<float>> of_weight_;
};

}  // namespace hearth::models
