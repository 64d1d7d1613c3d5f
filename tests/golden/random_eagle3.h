#pragma once
// A seeded EAGLE-3 head (models/decoder/eagle3.h) for a random llama, as floats and as a file. What
// it computes is compared with recordings (eagle3/); this one is for tests of files and of drafts.

#include <map>
#include <string>
#include <vector>

#include "models/gguf/gguf_writer.h"
#include "tests/golden/random_llama.h"

namespace hearth::golden {

struct Eagle3Shape {
  std::string name = {};
  std::vector<int32_t> layers = {0, 1, 2};
  std::vector<int64_t> draft_tokens = {};  ///< empty: all
  int32_t block_count = 1;
  bool own_output = true;
  bool norms = false;  ///< norm_before_residual and norm_before_fc
  /// Each token attends to itself and passes its embedding on, so the head is often right for a
  /// model whose next token depends mostly on the last one. Needs `own_output` to be false.
  bool often_right = false;
};

class RandomEagle3 {
 public:
  RandomEagle3(const Eagle3Shape& shape, const LlamaShape& model, uint32_t seed);

  std::vector<std::byte> file_bytes() const;
  /// The two halves of it.
  void describe(models::GgufWriter* file) const;
  void add_tensors(models::GgufWriter* file) const;

  struct Tensor {
    std::vector<uint64_t> dims;  ///< the contiguous one first
    std::vector<float> values;
  };
  std::map<std::string, Tensor>& tensors() { return tensors_; }

 private:
  Eagle3Shape shape_;
  LlamaShape model_;
  std::map<std::string, Tensor> tensors_;
};

}  // namespace hearth::golden
