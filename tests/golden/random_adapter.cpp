#include "tests/golden/random_adapter.h"

#include <cmath>
#include <random>

namespace hearth::golden {

std::vector<AdapterShape> adapter_shapes() {
  return {
      {.name = "attention",
       .ranks = {{"attn_q.weight", 4},
                 {"attn_k.weight", 4},
                 {"attn_v.weight", 4},
                 {"attn_output.weight", 4}}},
      {.name = "q and v, other ranks", .ranks = {{"attn_q.weight", 1}, {"attn_v.weight", 7}}},
      {.name = "feed-forward, no alpha",
       .ranks = {{"ffn_gate.weight", 8}, {"ffn_up.weight", 3}, {"ffn_down.weight", 5}},
       .alpha = 0,
       .gain = 0.3f},
      {.name = "up and output", .ranks = {{"ffn_up.weight", 32}, {"output.weight", 32}}},
  };
}

RandomAdapter::RandomAdapter(const AdapterShape& shape, RandomLlama& model, uint32_t seed)
    : shape_(shape) {
  std::mt19937 random(seed);
  const auto fill = [&](const std::string& name, uint64_t cols, uint64_t rows, float deviation) {
    std::normal_distribution<float> normal(0, deviation);
    RandomLlama::Tensor tensor{{cols, rows}, std::vector<float>(cols * rows)};
    for (float& value : tensor.values) value = normal(random);
    tensors_[name] = std::move(tensor);
  };
  for (const auto& [name, tensor] : model.tensors()) {
    for (const auto& [ending, rank] : shape.ranks) {
      // "output.weight" is the head alone.
      if (name != ending && !name.ends_with("." + ending)) continue;
      const auto ranks = static_cast<uint64_t>(rank);
      const float scale = shape.alpha == 0 ? 1 : shape.alpha / static_cast<float>(rank);
      fill(name + ".lora_a", tensor.dims[0], ranks,
           1 / std::sqrt(static_cast<float>(tensor.dims[0])));
      fill(name + ".lora_b", ranks, tensor.dims[1],
           shape.gain / scale / std::sqrt(static_cast<float>(rank)));
    }
  }
}

void RandomAdapter::describe(models::GgufWriter* file) const {
  file->set_string("general.type", "adapter");
  file->set_string("general.architecture", "llama");
  file->set_string("general.name", shape_.name);
  file->set_string("adapter.type", "lora");
  file->set_f32("adapter.lora.alpha", shape_.alpha);
}

void RandomAdapter::add_tensors(models::GgufWriter* file, kernels::DType matrix_type) const {
  for (const auto& [name, tensor] : tensors_) {
    // Rows of a rank may be too short for blocks.
    const bool whole = tensor.dims[0] % 32 == 0;
    file->add_floats(name, tensor.dims, whole ? matrix_type : kernels::DType::kF32, tensor.values);
  }
}

std::vector<std::byte> RandomAdapter::file_bytes(kernels::DType matrix_type) const {
  models::GgufWriter file;
  describe(&file);
  add_tensors(&file, matrix_type);
  return file.bytes();
}

void RandomAdapter::merge_into(RandomLlama& model, double scale) const {
  for (auto& [name, tensor] : model.tensors()) {
    const auto found = tensors_.find(name + ".lora_a");
    if (found == tensors_.end()) continue;
    const RandomLlama::Tensor& a = found->second;
    const RandomLlama::Tensor& b = tensors_.at(name + ".lora_b");
    const size_t inputs = a.dims[0], rank = a.dims[1];
    const double factor =
        shape_.alpha == 0 ? scale : scale * shape_.alpha / static_cast<double>(rank);
    for (size_t o = 0; o < b.dims[1]; ++o) {
      for (size_t k = 0; k < inputs; ++k) {
        double sum = 0;
        for (size_t r = 0; r < rank; ++r) {
          sum += double{b.values[o * rank + r]} * a.values[r * inputs + k];
        }
        tensor.values[o * inputs + k] += static_cast<float>(factor * sum);
      }
    }
  }
}

}  // namespace hearth::golden
