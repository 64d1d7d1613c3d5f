#pragma once
// Seeded heads that draft for a model of random weights: as a file, and as the formulas written in
// double.

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "kernels/ops/dtype.h"
#include "models/gguf/gguf_writer.h"
#include "tests/golden/random_llama.h"

namespace hearth::golden {

struct HeadsShape {
  std::string name;
  int32_t heads = 3;
  int32_t blocks = 1;
  bool chained = false;
  bool own_output = true;                  ///< not the model's
  std::vector<int32_t> draft_tokens = {};  ///< empty: all
  /// Of what blocks and hidden rows add. At 0, chained heads with the model's output see the
  /// embedding alone.
  float gain = 1.0f;
};

class RandomHeads {
 public:
  RandomHeads(const HeadsShape& shape, const LlamaShape& model, uint32_t seed);

  /// Logits of each draft after `tokens`, each continued by the one given.
  std::vector<std::vector<double>> drafts_after(const RandomLlama& model,
                                                std::span<const int32_t> tokens,
                                                std::span<const int32_t> drafts) const;
  /// Matrices in `matrix_type`, vectors in F32.
  std::vector<std::byte> file_bytes(kernels::DType matrix_type) const;
  /// Its two halves, for a file with other keys or tensors.
  void describe(models::GgufWriter* file) const;
  void add_tensors(models::GgufWriter* file, kernels::DType matrix_type) const;

  struct Tensor {
    std::vector<uint64_t> dims;  ///< the contiguous one first
    std::vector<float> values;
  };
  std::map<std::string, Tensor>& tensors() { return tensors_; }

 private:
  using Vector = std::vector<double>;
  Vector multiply(const std::string& weight, const Vector& x) const;
  Vector normed(const std::string& weight, const Vector& x) const;
  Vector blocks(const std::string& head, Vector x) const;

  HeadsShape shape_;
  LlamaShape model_;
  std::map<std::string, Tensor> tensors_;
};

std::vector<HeadsShape> heads_shapes();

}  // namespace hearth::golden
