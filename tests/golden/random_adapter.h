#pragma once
// A seeded low-rank adapter of a model of random weights: as a file, and merged into the weights.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "kernels/ops/dtype.h"
#include "models/gguf/gguf_writer.h"
#include "tests/golden/random_llama.h"

namespace hearth::golden {

struct AdapterShape {
  std::string name;
  /// Ends of the names of the tensors that it changes, and the rank.
  std::map<std::string, int32_t> ranks;
  float alpha = 16;
  float gain = 1;  ///< of what it adds, relative to what the model has
};

/// Attention, feed-forward, output, all; ranks that are equal and not.
std::vector<AdapterShape> adapter_shapes();

class RandomAdapter {
 public:
  RandomAdapter(const AdapterShape& shape, RandomLlama& model, uint32_t seed);

  std::vector<std::byte> file_bytes(kernels::DType matrix_type) const;
  /// Its two halves, for a file with other keys or tensors.
  void describe(models::GgufWriter* file) const;
  void add_tensors(models::GgufWriter* file, kernels::DType matrix_type) const;
  /// Adds it to the weights of the model for which it was made.
  void merge_into(RandomLlama& model, double scale) const;

  std::map<std::string, RandomLlama::Tensor>& tensors() { return tensors_; }

 private:
  AdapterShape shape_;
  std::map<std::string, RandomLlama::Tensor> tensors_;  ///< .lora_a and .lora_b
};

}  // namespace hearth::golden
