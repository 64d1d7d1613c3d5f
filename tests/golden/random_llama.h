#pragma once
// A seeded model of family llama with any shape, as floats, as a file, and as the formulas written
// in double without ops, blocks or caches. The ops are compared with this.

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/ops/dtype.h"
#include "models/gguf/gguf_file.h"

namespace hearth::golden {

struct LlamaShape {
  std::string name;
  int32_t layers = 2;
  int32_t width = 64;
  int32_t ffn = 96;
  int32_t heads = 4;
  int32_t kv_heads = 2;
  int32_t head_dim = 16;
  int32_t rope_dim = 16;
  int32_t vocab = 96;
  int32_t window = 0;
  bool tied = false;
  bool biases = false;
  /// Above 1 keeps attention from being nearly uniform, which would hide mistakes.
  float qk_gain = 2.0f;
  float branch_gain = 1.0f;  ///< of what attention and feed-forward add
  float rope_base = 10000.0f;
  float rope_factor = 1.0f;    ///< linear scaling
  bool rope_divisors = false;  ///< a rope_freqs.weight tensor
};

class RandomLlama {
 public:
  RandomLlama(const LlamaShape& shape, uint32_t seed);

  /// Matrices in `matrix_type`, that of V in `v_type` if given, vectors in F32.
  std::vector<std::byte> file_bytes(kernels::DType matrix_type,
                                    std::optional<kernels::DType> v_type = {}) const;
  /// Logits after each of `tokens`.
  std::vector<std::vector<double>> forward(std::span<const int32_t> tokens) const;
  /// The rows after the last norm, and what the head makes of one.
  std::vector<std::vector<double>> final_rows(std::span<const int32_t> tokens) const;
  std::vector<double> logits_of(const std::vector<double>& final_row) const;
  std::vector<double> embedding(int32_t token) const;
  const LlamaShape& shape() const { return shape_; }

  struct Tensor {
    std::vector<uint64_t> dims;  ///< the contiguous one first
    std::vector<float> values;
  };
  std::map<std::string, Tensor>& tensors() { return tensors_; }

 private:
  using Vector = std::vector<double>;

  const Tensor& at(const std::string& name) const { return tensors_.at(name); }
  Vector multiply(const std::string& weight, const Vector& x) const;
  Vector normed(const std::string& weight, const Vector& x) const;
  void add_bias(const std::string& bias, Vector* x) const;
  void rotate(Vector* heads, int32_t num_heads, int32_t position) const;
  Vector attend(const Vector& q, const std::vector<Vector>& keys, const std::vector<Vector>& values,
                int32_t position) const;

  LlamaShape shape_;
  std::map<std::string, Tensor> tensors_;
};

/// MHA, GQA, MQA, tied and not, biases, partial rotation, window, scaled positions.
std::vector<LlamaShape> llama_shapes();

/// A parsed file and the bytes it views.
struct OwnedFile {
  std::vector<std::byte> bytes;
  models::GgufFile file;
  explicit OwnedFile(std::vector<std::byte> content);
};

/// `count` tokens of the vocabulary from a seed.
std::vector<int32_t> random_tokens(int32_t count, int32_t vocab, uint32_t seed);

}  // namespace hearth::golden
