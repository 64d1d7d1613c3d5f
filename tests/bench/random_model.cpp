#include "tests/bench/random_model.h"

#include <fmt/format.h>

#include <cmath>
#include <string>
#include <vector>

#include "models/gguf/gguf_writer.h"

namespace hearth::bench {
namespace {

/// Uniform in [-1, 1) from SplitMix64 (Steele, Lea and Flood 2014).
class Noise {
 public:
  explicit Noise(uint64_t seed) : state_(seed) {}
  float next() {
    uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return static_cast<float>(static_cast<int32_t>((z ^ (z >> 31)) >> 32)) * 0x1p-31f;
  }

 private:
  uint64_t state_;
};

}  // namespace

Result<void> write_random_model(const RandomModelShape& shape, kernels::DType type, uint64_t seed,
                                const std::filesystem::path& path) {
  Noise noise(seed);
  models::GgufWriter writer;
  writer.set_string("general.architecture", "llama");
  writer.set_u32("llama.block_count", static_cast<uint32_t>(shape.layers));
  writer.set_u32("llama.context_length", static_cast<uint32_t>(shape.context));
  writer.set_u32("llama.embedding_length", static_cast<uint32_t>(shape.width));
  writer.set_u32("llama.feed_forward_length", static_cast<uint32_t>(shape.ffn));
  writer.set_u32("llama.attention.head_count", static_cast<uint32_t>(shape.heads));
  writer.set_u32("llama.attention.head_count_kv", static_cast<uint32_t>(shape.kv_heads));
  writer.set_u32("llama.attention.key_length", static_cast<uint32_t>(shape.head_dim));
  writer.set_u32("llama.attention.value_length", static_cast<uint32_t>(shape.head_dim));
  writer.set_u32("llama.rope.dimension_count", static_cast<uint32_t>(shape.head_dim));
  writer.set_u32("llama.vocab_size", static_cast<uint32_t>(shape.vocab));
  writer.set_f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);

  std::vector<float> values;
  const auto matrix = [&](const std::string& name, int32_t rows, int32_t cols) {
    const float scale = std::sqrt(3.0f / static_cast<float>(cols));  // outputs of variance 1
    values.resize(static_cast<size_t>(rows) * static_cast<size_t>(cols));
    for (float& value : values) value = scale * noise.next();
    const uint64_t dims[] = {static_cast<uint64_t>(cols), static_cast<uint64_t>(rows)};
    writer.add_floats(name, dims, type, values);
  };
  const auto ones = [&](const std::string& name) {
    values.assign(static_cast<size_t>(shape.width), 1.0f);
    const uint64_t dims[] = {static_cast<uint64_t>(shape.width)};
    writer.add_floats(name, dims, kernels::DType::kF32, values);
  };
  matrix("token_embd.weight", shape.vocab, shape.width);
  ones("output_norm.weight");
  for (int32_t layer = 0; layer < shape.layers; ++layer) {
    const std::string prefix = fmt::format("blk.{}.", layer);
    ones(prefix + "attn_norm.weight");
    matrix(prefix + "attn_q.weight", shape.heads * shape.head_dim, shape.width);
    matrix(prefix + "attn_k.weight", shape.kv_heads * shape.head_dim, shape.width);
    matrix(prefix + "attn_v.weight", shape.kv_heads * shape.head_dim, shape.width);
    matrix(prefix + "attn_output.weight", shape.width, shape.heads * shape.head_dim);
    ones(prefix + "ffn_norm.weight");
    matrix(prefix + "ffn_gate.weight", shape.ffn, shape.width);
    matrix(prefix + "ffn_up.weight", shape.ffn, shape.width);
    matrix(prefix + "ffn_down.weight", shape.width, shape.ffn);
  }
  return writer.write(path);
}

}  // namespace hearth::bench
