#pragma once
// A small file that ranks: a vocabulary and a classifier of two values with one score.

#include <cstdint>
#include <string_view>
#include <vector>

#include "models/gguf/gguf_writer.h"
#include "tests/unit/models/test_vocab.h"

namespace hearth::models {

inline void add(GgufWriter* file, std::string_view name, const std::vector<uint64_t>& dims,
                const std::vector<float>& values) {
  file->add_floats(name, dims, kernels::DType::kF32, values);
}

inline GgufWriter ranking_file(bool add_eos = true) {
  GgufWriter file = vocab_file(small_vocab());
  file.set_u32("llama.pooling_type", 4);
  file.set_u32("llama.embedding_length", 2);
  file.set_bool("tokenizer.ggml.add_eos_token", add_eos);
  add(&file, "cls.output.weight", {2, 1}, {2, -1});
  add(&file, "cls.output.bias", {1}, {0.5f});
  return file;
}

}  // namespace hearth::models
