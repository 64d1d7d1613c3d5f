#include "tests/golden/random_heads.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace hearth::golden {

std::vector<HeadsShape> heads_shapes() {
  return {
      {.name = "plain"},
      {.name = "two blocks", .heads = 2, .blocks = 2},
      {.name = "the model's output", .heads = 5, .own_output = false},
      {.name = "no blocks", .blocks = 0},
      {.name = "some tokens", .draft_tokens = {0, 3, 4, 17, 60, 76}},
      {.name = "chained", .heads = 1, .blocks = 2, .chained = true},
      {.name = "chained, two heads", .heads = 2, .chained = true, .own_output = false},
      {.name = "chained, some tokens", .chained = true, .draft_tokens = {1, 2, 30, 31, 75}},
  };
}

RandomHeads::RandomHeads(const HeadsShape& shape, const LlamaShape& model, uint32_t seed)
    : shape_(shape), model_(model) {
  std::mt19937 random(seed);
  const auto fill = [&](const std::string& name, std::vector<uint64_t> dims, float mean,
                        float deviation) {
    std::normal_distribution<float> normal(mean, 1.0f);
    Tensor tensor{std::move(dims), {}};
    uint64_t elements = 1;
    for (const uint64_t dim : tensor.dims) elements *= dim;
    for (uint64_t i = 0; i < elements; ++i) {
      tensor.values.push_back(mean + (normal(random) - mean) * deviation);
    }
    tensors_[name] = std::move(tensor);
  };
  const auto width = static_cast<uint64_t>(model.width);
  const float scale = 1.0f / std::sqrt(static_cast<float>(width));
  for (int32_t k = 0; k < shape.heads; ++k) {
    const std::string head = "head." + std::to_string(k) + ".";
    if (shape.chained) {
      fill(head + "pair.weight", {2 * width, width}, 0, scale * shape.gain);
      // What the embedding adds passes through.
      std::vector<float>& pair = tensors_[head + "pair.weight"].values;
      for (uint64_t i = 0; i < width; ++i) pair[i * 2 * width + i] += 1.0f;
      for (const char* norm : {"embedding_norm", "hidden_norm", "output_norm"}) {
        fill(head + norm + ".weight", {width}, 1, 0.2f * shape.gain);
      }
    }
    for (int32_t i = 0; i < shape.blocks; ++i) {
      const std::string block = head + "block." + std::to_string(i) + ".";
      fill(block + "weight", {width, width}, 0, scale * shape.gain);
      fill(block + "bias", {width}, 0, 0.2f * shape.gain);
    }
    if (!shape.own_output) continue;
    const uint64_t tokens =
        shape.draft_tokens.empty() ? static_cast<uint64_t>(model.vocab) : shape.draft_tokens.size();
    fill(head + "output.weight", {width, tokens}, 0, 3 * scale);
  }
}

void RandomHeads::describe(models::GgufWriter* file) const {
  file->set_string("general.architecture", "medusa");
  file->set_u32("medusa.head_count", static_cast<uint32_t>(shape_.heads));
  file->set_u32("medusa.block_count", static_cast<uint32_t>(shape_.blocks));
  file->set_u32("medusa.embedding_length", static_cast<uint32_t>(model_.width));
  file->set_u32("medusa.vocab_size", static_cast<uint32_t>(model_.vocab));
  if (shape_.chained) file->set_bool("medusa.chained", true);
  if (!shape_.draft_tokens.empty()) file->set_i32s("medusa.draft_tokens", shape_.draft_tokens);
}

void RandomHeads::add_tensors(models::GgufWriter* file, kernels::DType matrix_type) const {
  for (const auto& [name, tensor] : tensors_) {
    file->add_floats(name, tensor.dims,
                     tensor.dims.size() == 1 ? kernels::DType::kF32 : matrix_type, tensor.values);
  }
}

std::vector<std::byte> RandomHeads::file_bytes(kernels::DType matrix_type) const {
  models::GgufWriter file;
  describe(&file);
  add_tensors(&file, matrix_type);
  return file.bytes();
}

// ---- The formulas ---------------------------------------------------------------------------

RandomHeads::Vector RandomHeads::multiply(const std::string& weight, const Vector& x) const {
  const Tensor& w = tensors_.at(weight);
  Vector out(w.dims[1], 0.0);
  for (size_t o = 0; o < out.size(); ++o) {
    for (size_t k = 0; k < x.size(); ++k) out[o] += w.values[o * x.size() + k] * x[k];
  }
  return out;
}

RandomHeads::Vector RandomHeads::normed(const std::string& weight, const Vector& x) const {
  double mean_square = 0;
  for (const double v : x) mean_square += v * v / static_cast<double>(x.size());
  Vector out(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    out[i] = x[i] / std::sqrt(mean_square + 1e-5) * tensors_.at(weight).values[i];
  }
  return out;
}

RandomHeads::Vector RandomHeads::blocks(const std::string& head, Vector x) const {
  for (int32_t i = 0; i < shape_.blocks; ++i) {
    const std::string block = head + "block." + std::to_string(i) + ".";
    const Vector z = multiply(block + "weight", x);
    for (size_t j = 0; j < x.size(); ++j) {
      const double biased = z[j] + tensors_.at(block + "bias").values[j];
      x[j] += biased / (1 + std::exp(-biased));
    }
  }
  return x;
}

std::vector<std::vector<double>> RandomHeads::drafts_after(const RandomLlama& model,
                                                           std::span<const int32_t> tokens,
                                                           std::span<const int32_t> drafts) const {
  Vector h = model.final_rows(tokens.first(tokens.size() - 1)).back();
  std::vector<Vector> out;
  for (size_t place = 0; place < drafts.size(); ++place) {
    const auto last = static_cast<size_t>(shape_.heads - 1);
    const std::string head = "head." + std::to_string(std::min(place, last)) + ".";
    Vector x = h;
    if (shape_.chained) {
      const int32_t token = place == 0 ? tokens.back() : drafts[place - 1];
      Vector pair = normed(head + "embedding_norm.weight", model.embedding(token));
      const Vector hidden = normed(head + "hidden_norm.weight", h);
      pair.insert(pair.end(), hidden.begin(), hidden.end());
      x = multiply(head + "pair.weight", pair);
    }
    x = blocks(head, std::move(x));
    if (shape_.chained) h = x = normed(head + "output_norm.weight", x);
    out.push_back(shape_.own_output ? multiply(head + "output.weight", x) : model.logits_of(x));
  }
  return out;
}

}  // namespace hearth::golden
