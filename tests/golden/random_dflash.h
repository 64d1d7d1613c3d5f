#pragma once
// A seeded DFlash drafter (models/decoder/dflash.h) for a random llama, as floats and as a file.
// What it computes is compared with recordings (dflash/); this one is for tests of files and of
// drafts.

#include <map>
#include <string>
#include <vector>

#include "models/gguf/gguf_writer.h"
#include "tests/golden/random_llama.h"

namespace hearth::golden {

struct DFlashShape {
  std::vector<int32_t> layers = {0, 1};
  int32_t block_size = 6;
  int32_t mask = 5;
  /// Masked tokens attend to the text's last token and take its embedding over, so the first draft
  /// is often right for a model whose next token depends mostly on the last one.
  bool often_right = false;
};

class RandomDFlash {
 public:
  RandomDFlash(const DFlashShape& shape, const RandomLlama& model, uint32_t seed);

  std::vector<std::byte> file_bytes() const;
  /// The two halves of it.
  void describe(models::GgufWriter* file) const;
  void add_tensors(models::GgufWriter* file) const;

  std::map<std::string, RandomLlama::Tensor>& tensors() { return tensors_; }

 private:
  void take_last_token(const RandomLlama& model);

  DFlashShape shape_;
  LlamaShape model_;
  std::map<std::string, RandomLlama::Tensor> tensors_;
};

}  // namespace hearth::golden
