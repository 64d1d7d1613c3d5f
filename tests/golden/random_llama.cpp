#include "tests/golden/random_llama.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "models/gguf/gguf_writer.h"
#include "models/quantize/quantize_rows.h"

namespace hearth::golden {

std::vector<LlamaShape> llama_shapes() {
  return {
      {.name = "gqa"},
      {.name = "mha, tied", .kv_heads = 4, .tied = true},
      {.name = "mqa, biases", .kv_heads = 1, .biases = true},
      {.name = "heads wider than the model, partial rotation", .head_dim = 32, .rope_dim = 20},
      {.name = "window", .window = 7},
      {.name = "squeezed positions", .rope_base = 500000.0f, .rope_factor = 4.0f},
      {.name = "stored divisors", .rope_divisors = true},
      {.name = "odd sizes",
       .layers = 1,
       .width = 60,
       .ffn = 44,
       .head_dim = 14,
       .rope_dim = 14,
       .vocab = 77},
  };
}

RandomLlama::RandomLlama(const LlamaShape& shape, uint32_t seed) : shape_(shape) {
  std::mt19937 random(seed);
  const auto fill = [&](const std::string& name, std::vector<uint64_t> dims, float mean,
                        float deviation) {
    std::normal_distribution<float> normal(mean, deviation);
    Tensor tensor{std::move(dims), {}};
    uint64_t elements = 1;
    for (const uint64_t dim : tensor.dims) elements *= dim;
    tensor.values.resize(elements);
    for (float& value : tensor.values) value = normal(random);
    tensors_[name] = std::move(tensor);
  };
  const auto matrix = [&](const std::string& name, int64_t cols, int64_t rows, float gain = 1.0f) {
    fill(name, {static_cast<uint64_t>(cols), static_cast<uint64_t>(rows)}, 0,
         gain / std::sqrt(static_cast<float>(cols)));
  };
  const auto vector = [&](const std::string& name, int64_t size, float mean) {
    fill(name, {static_cast<uint64_t>(size)}, mean, 0.2f);
  };
  const LlamaShape& s = shape_;
  const int64_t q = int64_t{s.heads} * s.head_dim, kv = int64_t{s.kv_heads} * s.head_dim;
  matrix("token_embd.weight", s.width, s.vocab, 4);
  for (int32_t i = 0; i < s.layers; ++i) {
    const std::string blk = "blk." + std::to_string(i) + ".";
    vector(blk + "attn_norm.weight", s.width, 1);
    matrix(blk + "attn_q.weight", s.width, q, s.qk_gain);
    matrix(blk + "attn_k.weight", s.width, kv, s.qk_gain);
    matrix(blk + "attn_v.weight", s.width, kv);
    matrix(blk + "attn_output.weight", q, s.width, s.branch_gain);
    vector(blk + "ffn_norm.weight", s.width, 1);
    matrix(blk + "ffn_gate.weight", s.width, s.ffn);
    matrix(blk + "ffn_up.weight", s.width, s.ffn);
    matrix(blk + "ffn_down.weight", s.ffn, s.width, s.branch_gain);
    if (!s.biases) continue;
    for (const auto& [name, size] :
         std::initializer_list<std::pair<const char*, int64_t>>{{"attn_q.bias", q},
                                                                {"attn_k.bias", kv},
                                                                {"attn_v.bias", kv},
                                                                {"attn_output.bias", s.width},
                                                                {"ffn_gate.bias", s.ffn},
                                                                {"ffn_up.bias", s.ffn},
                                                                {"ffn_down.bias", s.width}}) {
      vector(blk + name, size, 0);
    }
  }
  vector("output_norm.weight", s.width, 1);
  if (!s.tied) matrix("output.weight", s.width, s.vocab, 3);
  if (s.rope_divisors) {
    Tensor divisors{{static_cast<uint64_t>(s.rope_dim / 2)}, {}};
    for (int32_t i = 0; i < s.rope_dim / 2; ++i) {
      divisors.values.push_back(1.0f + static_cast<float>(i));
    }
    tensors_["rope_freqs.weight"] = divisors;
  }
}

std::vector<std::byte> RandomLlama::file_bytes(kernels::DType matrix_type,
                                               std::optional<kernels::DType> v_type) const {
  const LlamaShape& s = shape_;
  models::GgufWriter w;
  w.set_string("general.architecture", "llama");
  w.set_u32("llama.context_length", 512);
  w.set_u32("llama.embedding_length", static_cast<uint32_t>(s.width));
  w.set_u32("llama.block_count", static_cast<uint32_t>(s.layers));
  w.set_u32("llama.feed_forward_length", static_cast<uint32_t>(s.ffn));
  w.set_u32("llama.attention.head_count", static_cast<uint32_t>(s.heads));
  w.set_u32("llama.attention.head_count_kv", static_cast<uint32_t>(s.kv_heads));
  w.set_u32("llama.attention.key_length", static_cast<uint32_t>(s.head_dim));
  w.set_u32("llama.attention.value_length", static_cast<uint32_t>(s.head_dim));
  w.set_u32("llama.attention.sliding_window", static_cast<uint32_t>(s.window));
  w.set_f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  w.set_u32("llama.rope.dimension_count", static_cast<uint32_t>(s.rope_dim));
  w.set_f32("llama.rope.freq_base", s.rope_base);
  w.set_string("llama.rope.scaling.type", "linear");
  w.set_f32("llama.rope.scaling.factor", s.rope_factor);
  for (const auto& [name, tensor] : tensors_) {
    const bool is_v = name.ends_with("attn_v.weight");
    const kernels::DType type = tensor.dims.size() == 1 ? kernels::DType::kF32
                                : is_v                  ? v_type.value_or(matrix_type)
                                                        : matrix_type;
    const auto cols = static_cast<int64_t>(tensor.dims[0]);
    w.add_tensor(name, tensor.dims, type, models::quantize_rows(type, tensor.values, cols).value());
  }
  return w.bytes();
}

// ---- The formulas ---------------------------------------------------------------------------

RandomLlama::Vector RandomLlama::multiply(const std::string& weight, const Vector& x) const {
  const Tensor& w = at(weight);
  Vector out(w.dims[1], 0.0);
  for (size_t o = 0; o < out.size(); ++o) {
    for (size_t k = 0; k < x.size(); ++k) out[o] += w.values[o * x.size() + k] * x[k];
  }
  return out;
}

RandomLlama::Vector RandomLlama::normed(const std::string& weight, const Vector& x) const {
  double mean_square = 0;
  for (const double v : x) mean_square += v * v / static_cast<double>(x.size());
  Vector out(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    out[i] = x[i] / std::sqrt(mean_square + 1e-5) * at(weight).values[i];
  }
  return out;
}

void RandomLlama::add_bias(const std::string& bias, Vector* x) const {
  const auto found = tensors_.find(bias);
  if (found == tensors_.end()) return;
  for (size_t i = 0; i < x->size(); ++i) (*x)[i] += found->second.values[i];
}

void RandomLlama::rotate(Vector* heads, int32_t num_heads, int32_t position) const {
  for (int32_t h = 0; h < num_heads; ++h) {
    for (int32_t i = 0; i < shape_.rope_dim / 2; ++i) {
      double frequency =
          std::pow(static_cast<double>(shape_.rope_base), -2.0 * i / shape_.rope_dim);
      if (shape_.rope_divisors) frequency /= 1.0 + i;
      const double angle = position * frequency / shape_.rope_factor;
      double& a = (*heads)[static_cast<size_t>(h * shape_.head_dim + 2 * i)];
      double& b = (*heads)[static_cast<size_t>(h * shape_.head_dim + 2 * i + 1)];
      const double rotated = a * std::cos(angle) - b * std::sin(angle);
      b = a * std::sin(angle) + b * std::cos(angle);
      a = rotated;
    }
  }
}

RandomLlama::Vector RandomLlama::attend(const Vector& q, const std::vector<Vector>& keys,
                                        const std::vector<Vector>& values, int32_t position) const {
  const LlamaShape& s = shape_;
  const int32_t first = s.window > 0 ? std::max(0, position - s.window + 1) : 0;
  Vector out(q.size(), 0.0);
  for (int32_t h = 0; h < s.heads; ++h) {
    const auto kv_at = static_cast<size_t>(h / (s.heads / s.kv_heads) * s.head_dim);
    const auto q_at = static_cast<size_t>(h * s.head_dim);
    std::vector<double> shares;
    double sum = 0;
    for (int32_t p = first; p <= position; ++p) {
      double score = 0;
      for (size_t d = 0; d < static_cast<size_t>(s.head_dim); ++d) {
        score += q[q_at + d] * keys[static_cast<size_t>(p)][kv_at + d];
      }
      shares.push_back(std::exp(score / std::sqrt(s.head_dim)));
      sum += shares.back();
    }
    for (int32_t p = first; p <= position; ++p) {
      const double share = shares[static_cast<size_t>(p - first)] / sum;
      for (size_t d = 0; d < static_cast<size_t>(s.head_dim); ++d) {
        out[q_at + d] += share * values[static_cast<size_t>(p)][kv_at + d];
      }
    }
  }
  return out;
}

std::vector<std::vector<double>> RandomLlama::final_rows(std::span<const int32_t> tokens) const {
  const LlamaShape& s = shape_;
  const auto width = static_cast<size_t>(s.width);
  std::vector<Vector> x;
  for (const int32_t token : tokens) {
    const auto row = at("token_embd.weight").values.begin() + token * s.width;
    x.emplace_back(row, row + s.width);
  }
  for (int32_t layer = 0; layer < s.layers; ++layer) {
    const std::string blk = "blk." + std::to_string(layer) + ".";
    std::vector<Vector> keys, values;
    for (size_t t = 0; t < x.size(); ++t) {
      const auto position = static_cast<int32_t>(t);
      const Vector h = normed(blk + "attn_norm.weight", x[t]);
      Vector q = multiply(blk + "attn_q.weight", h);
      Vector k = multiply(blk + "attn_k.weight", h);
      Vector v = multiply(blk + "attn_v.weight", h);
      add_bias(blk + "attn_q.bias", &q);
      add_bias(blk + "attn_k.bias", &k);
      add_bias(blk + "attn_v.bias", &v);
      rotate(&q, s.heads, position);
      rotate(&k, s.kv_heads, position);
      keys.push_back(k);
      values.push_back(v);
      Vector added = multiply(blk + "attn_output.weight", attend(q, keys, values, position));
      add_bias(blk + "attn_output.bias", &added);
      for (size_t i = 0; i < width; ++i) x[t][i] += added[i];
    }
    for (Vector& row : x) {
      const Vector h = normed(blk + "ffn_norm.weight", row);
      Vector gate = multiply(blk + "ffn_gate.weight", h);
      Vector up = multiply(blk + "ffn_up.weight", h);
      add_bias(blk + "ffn_gate.bias", &gate);
      add_bias(blk + "ffn_up.bias", &up);
      for (size_t i = 0; i < gate.size(); ++i) gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
      Vector added = multiply(blk + "ffn_down.weight", gate);
      add_bias(blk + "ffn_down.bias", &added);
      for (size_t i = 0; i < width; ++i) row[i] += added[i];
    }
  }
  for (Vector& row : x) row = normed("output_norm.weight", row);
  return x;
}

std::vector<std::vector<double>> RandomLlama::forward(std::span<const int32_t> tokens) const {
  std::vector<Vector> logits = final_rows(tokens);
  for (Vector& row : logits) row = logits_of(row);
  return logits;
}

std::vector<double> RandomLlama::logits_of(const std::vector<double>& final_row) const {
  return multiply(shape_.tied ? "token_embd.weight" : "output.weight", final_row);
}

std::vector<double> RandomLlama::embedding(int32_t token) const {
  const auto row = at("token_embd.weight").values.begin() + token * shape_.width;
  return {row, row + shape_.width};
}

OwnedFile::OwnedFile(std::vector<std::byte> content) : bytes(std::move(content)) {
  auto parsed = models::GgufFile::parse(bytes, "random");
  REQUIRE_MESSAGE(parsed.ok(), parsed.error().message);
  file = std::move(parsed).value();
}

std::vector<int32_t> random_tokens(int32_t count, int32_t vocab, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<int32_t>(random() % static_cast<uint32_t>(vocab)));
  }
  return tokens;
}

}  // namespace hearth::golden
