#include "tests/golden/random_dflash.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace hearth::golden {
namespace {

constexpr uint64_t kHeads = 4, kFfn = 96;

}  // namespace

RandomDFlash::RandomDFlash(const DFlashShape& shape, const RandomLlama& model, uint32_t seed)
    : shape_(shape), model_(model.shape()) {
  std::mt19937 random(seed);
  const auto tensor = [&](const std::string& name, std::vector<uint64_t> dims, float mean,
                          float deviation) {
    std::normal_distribution<float> normal(mean, deviation);
    RandomLlama::Tensor& out = tensors_[name] = {std::move(dims), {}};
    const uint64_t count = out.dims.front() * (out.dims.size() > 1 ? out.dims[1] : 1);
    for (uint64_t i = 0; i < count; ++i) out.values.push_back(normal(random));
  };
  const auto matrix = [&](const std::string& name, uint64_t cols, uint64_t rows) {
    tensor(name, {cols, rows}, 0, 1 / std::sqrt(static_cast<float>(cols)));
  };
  const auto width = static_cast<uint64_t>(model_.width);
  matrix("fc.weight", shape.layers.size() * width, width);
  tensor("enc.output_norm.weight", {width}, 1, 0.2f);
  tensor("output_norm.weight", {width}, 1, 0.01f);
  for (const char* norm : {"attn_norm", "ffn_norm"}) {
    tensor(std::string("blk.0.") + norm + ".weight", {width}, 1, 0.01f);
  }
  for (const char* part : {"attn_q", "attn_k", "attn_v", "attn_output"}) {
    matrix(std::string("blk.0.") + part + ".weight", width, width);
  }
  for (const char* norm : {"attn_q_norm", "attn_k_norm"}) {
    tensor(std::string("blk.0.") + norm + ".weight", {width / kHeads}, 1, 0.2f);
  }
  matrix("blk.0.ffn_gate.weight", width, kFfn);
  matrix("blk.0.ffn_up.weight", width, kFfn);
  matrix("blk.0.ffn_down.weight", kFfn, width);
  if (shape.often_right) take_last_token(model);
}

// The last value of each embedding is the same for all tokens but the mask, which has its negative.
// Queries and keys are made of it alone, in the pair of values that positions hardly rotate.
void RandomDFlash::take_last_token(const RandomLlama& model) {
  constexpr float kMark = 8;
  const auto width = static_cast<uint64_t>(model_.width);
  const uint64_t dim = width / kHeads;
  const auto values = [this](const std::string& name) -> std::vector<float>& {
    return tensors_["blk.0." + name + ".weight"].values;
  };
  RandomLlama::Tensor& embedding =
      tensors_["token_embd.weight"] = {{width, static_cast<uint64_t>(model_.vocab)}, {}};
  for (int32_t token = 0; token < model_.vocab; ++token) {
    for (const double value : model.embedding(token)) {
      embedding.values.push_back(static_cast<float>(value));
    }
    embedding.values.back() = token == shape_.mask ? -kMark : kMark;
  }
  std::ranges::fill(tensors_["enc.output_norm.weight"].values, 0.0f);
  std::ranges::fill(values("attn_q_norm"), 4.0f);
  std::ranges::fill(values("attn_k_norm"), 4.0f);
  for (const char* part : {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_down"}) {
    std::ranges::fill(values(part), 0.0f);
  }
  for (uint64_t head = 0; head < kHeads; ++head) {
    const uint64_t row = head * dim + dim / 2 - 1;
    values("attn_q")[row * width + width - 1] = -1;
    values("attn_k")[row * width + width - 1] = 1;
  }
  for (uint64_t i = 0; i + 1 < width; ++i) {
    values("attn_v")[i * width + i] = 1;
    values("attn_output")[i * width + i] = 16;
  }
}

void RandomDFlash::describe(models::GgufWriter* file) const {
  const auto u32 = [&](const char* key, int32_t value) {
    file->set_u32(std::string("dflash.") + key, static_cast<uint32_t>(value));
  };
  file->set_string("general.architecture", "dflash");
  u32("context_length", 256);
  u32("embedding_length", model_.width);
  u32("block_count", 1);
  u32("feed_forward_length", kFfn);
  u32("attention.head_count", kHeads);
  u32("attention.head_count_kv", kHeads);
  file->set_f32("dflash.attention.layer_norm_rms_epsilon", 1e-5f);
  u32("vocab_size", model_.vocab);
  u32("block_size", shape_.block_size);
  file->set_i32s("dflash.target_layers", shape_.layers);
  file->set_u32("tokenizer.ggml.mask_token_id", static_cast<uint32_t>(shape_.mask));
}

void RandomDFlash::add_tensors(models::GgufWriter* file) const {
  for (const auto& [name, tensor] : tensors_) {
    file->add_floats(name, tensor.dims, kernels::DType::kF32, tensor.values);
  }
}

std::vector<std::byte> RandomDFlash::file_bytes() const {
  models::GgufWriter file;
  describe(&file);
  add_tensors(&file);
  return file.bytes();
}

}  // namespace hearth::golden
