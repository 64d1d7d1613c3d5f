#include "tests/golden/random_eagle3.h"

#include <cmath>
#include <random>

#include "tests/golden/family_model.h"

namespace hearth::golden {

RandomEagle3::RandomEagle3(const Eagle3Shape& shape, const LlamaShape& model, uint32_t seed)
    : shape_(shape), model_(model) {
  std::mt19937 random(seed);
  const auto matrix = [&](const std::string& name, uint64_t cols, uint64_t rows, float gain) {
    std::normal_distribution<float> normal(0, gain / std::sqrt(static_cast<float>(cols)));
    Tensor tensor{{cols, rows}, {}};
    for (uint64_t i = 0; i < cols * rows; ++i) tensor.values.push_back(normal(random));
    tensors_[name] = std::move(tensor);
  };
  const auto vector = [&](const std::string& name, uint64_t size) {
    std::normal_distribution<float> normal(1, shape.often_right ? 0.01f : 0.2f);
    Tensor tensor{{size}, {}};
    for (uint64_t i = 0; i < size; ++i) tensor.values.push_back(normal(random));
    tensors_[name] = std::move(tensor);
  };
  const auto width = static_cast<uint64_t>(model.width);
  const float some = shape.often_right ? 0.02f : 1.0f;
  matrix("fc.weight", 3 * width, width, some);
  if (shape.norms) vector("enc.output_norm.weight", 3 * width);
  for (const char* norm : {"attn_norm", "attn_norm_2", "ffn_norm"}) {
    vector(std::string("blk.0.") + norm + ".weight", width);
  }
  vector("output_norm.weight", width);
  // Four heads of K and V, so that all of a row fits into them.
  matrix("blk.0.attn_q.weight", 2 * width, width, 2);
  matrix("blk.0.attn_k.weight", 2 * width, width, 2);
  matrix("blk.0.attn_v.weight", 2 * width, width, some);
  matrix("blk.0.attn_output.weight", width, width, some);
  matrix("blk.0.ffn_gate.weight", width, 96, 1);
  matrix("blk.0.ffn_up.weight", width, 96, 1);
  matrix("blk.0.ffn_down.weight", 96, width, some);
  if (shape.often_right) {
    std::vector<float>& q = tensors_["blk.0.attn_q.weight"].values;
    for (float& value : q) value *= 3;
    tensors_["blk.0.attn_k.weight"].values = q;
    for (uint64_t i = 0; i < width; ++i) {
      tensors_["blk.0.attn_v.weight"].values[i * 2 * width + i] += 1;
      tensors_["blk.0.attn_output.weight"].values[i * width + i] += 1;
    }
  }
  if (!shape.own_output) return;
  const uint64_t tokens =
      shape.draft_tokens.empty() ? static_cast<uint64_t>(model.vocab) : shape.draft_tokens.size();
  matrix("output.weight", width, tokens, 3);
}

void RandomEagle3::describe(models::GgufWriter* file) const {
  const auto u32 = [&](const char* key, int32_t value) {
    file->set_u32(std::string("eagle3.") + key, static_cast<uint32_t>(value));
  };
  file->set_string("general.architecture", "eagle3");
  u32("context_length", 256);
  u32("embedding_length", model_.width);
  u32("block_count", shape_.block_count);
  u32("feed_forward_length", 96);
  u32("attention.head_count", 4);
  u32("attention.head_count_kv", 4);
  file->set_f32("eagle3.attention.layer_norm_rms_epsilon", 1e-5f);
  u32("vocab_size", model_.vocab);
  u32("target_hidden_size", model_.width);
  file->set_i32s("eagle3.target_layers", shape_.layers);
  file->set_bool("eagle3.norm_before_residual", shape_.norms);
  file->set_bool("eagle3.norm_before_fc", shape_.norms);
}

void RandomEagle3::add_tensors(models::GgufWriter* file) const {
  for (const auto& [name, tensor] : tensors_) {
    file->add_floats(name, tensor.dims, kernels::DType::kF32, tensor.values);
  }
  if (!shape_.draft_tokens.empty()) add_draft_tokens(file, shape_.draft_tokens);
}

std::vector<std::byte> RandomEagle3::file_bytes() const {
  models::GgufWriter file;
  describe(&file);
  add_tensors(&file);
  return file.bytes();
}

}  // namespace hearth::golden
