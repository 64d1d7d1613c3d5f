#pragma once
// The classifier with which a model scores a pair of texts.
//
//   score = W_out tanh(W x + b) + b_out       (without W: W_out x + b_out)
//
// x is a row of the pair: an encoder's first or a decoder's last one. With two labels the score is
// that of "yes" less that of the other. Source: Nogueira and Cho 2019; Zhang et al. 2025 (Qwen3
// Embedding).

#include <optional>
#include <span>
#include <vector>

#include "kernels/base/result.h"

namespace hearth::models {

class GgufFile;

/// Immutable. In double on the host: one row for each pair.
class Classifier {
 public:
  /// Tensors cls.weight (width, width), cls.bias, cls.output.weight (width, 1 or 2) and
  /// cls.output.bias; all but the third may be missing. kCorrupt names an ill-shaped one,
  /// kUnsupported what is missing.
  static Result<Classifier> load(const GgufFile& file);

  /// `row`: width values. `as_chance`: the logistic function of the score, 0 to 1.
  float score(std::span<const float> row, bool as_chance) const;

 private:
  /// W x + b
  struct Product {
    std::vector<float> weight;  ///< (rows, cols)
    std::vector<float> bias;    ///< empty: 0
    std::vector<double> times(std::span<const double> x) const;
  };

  std::optional<Product> dense_;
  Product out_;
  size_t yes_ = 0;  ///< of two labels
};

}  // namespace hearth::models
