#pragma once
// Why a model computes what is no number: mostly a weight that is none.

#include <filesystem>
#include <optional>
#include <string>

#include "kernels/base/result.h"

namespace hearth::worker {

class DamagedWeights {
 public:
  explicit DamagedWeights(std::filesystem::path model) : model_(std::move(model)) {}

  /// The error of a request. Where it says that logits are no numbers, the model's file is read
  /// through, once and for 10 s at most, and the weight at fault is named (kCorrupt).
  Error explain(Error error);

 private:
  const std::filesystem::path model_;
  std::optional<std::string> found_;  ///< empty: nothing was
};

}  // namespace hearth::worker
