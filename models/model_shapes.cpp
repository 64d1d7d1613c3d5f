#include <fmt/format.h>
#include <fmt/ranges.h>

#include "models/random_model.h"

namespace hearth::models {
namespace {

constexpr ModelShape kGptOss{.name = "gpt-oss-20b",
                             .layers = 24,
                             .width = 2880,
                             .ffn = 2880,
                             .heads = 64,
                             .kv_heads = 8,
                             .head_dim = 64,
                             .vocab = 201088,
                             .context = 32768,
                             .tied = false,
                             .architecture = "gpt-oss",
                             .experts = 32,
                             .experts_used = 4,
                             .expert_ffn = 2880,
                             .window = 128};
constexpr ModelShape kDeepSeek{.name = "deepseek-v2-lite",
                               .layers = 27,
                               .width = 2048,
                               .ffn = 10944,
                               .heads = 16,
                               .kv_heads = 1,
                               .head_dim = 128,
                               .vocab = 102400,
                               .context = 32768,
                               .tied = false,
                               .architecture = "deepseek2",
                               .experts = 64,
                               .experts_used = 6,
                               .expert_ffn = 1408,
                               .shared_experts = 2,
                               .dense_layers = 1,
                               .kv_rank = 512,
                               .rotated = 64};

constexpr ModelShape kQwen35{.name = "qwen3.5-2b",
                             .layers = 24,
                             .width = 2048,
                             .ffn = 6144,
                             .heads = 8,
                             .kv_heads = 2,
                             .head_dim = 256,
                             .vocab = 151936,
                             .context = 32768,
                             .architecture = "qwen35",
                             .rotated = 64,
                             .state_heads = 16,
                             .state_dim = 128,
                             .attention_every = 4};

constexpr ModelShape kLlada{.name = "llada-8b",
                            .layers = 32,
                            .width = 4096,
                            .ffn = 12288,
                            .heads = 32,
                            .kv_heads = 32,
                            .head_dim = 128,
                            .vocab = 126464,
                            .context = 4096,
                            .tied = false,
                            .architecture = "llada"};

constexpr ModelShape kRwkv7{.name = "rwkv7-1.5b",
                            .layers = 24,
                            .width = 2048,
                            .ffn = 8192,
                            .vocab = 65536,
                            .context = 32768,
                            .tied = false,
                            .architecture = "rwkv7",
                            .state_heads = 32,
                            .state_dim = 64,
                            .decay_rank = 96,
                            .v_rank = 64,
                            .gate_rank = 256};

constexpr ModelShape with_q_rank(ModelShape shape, int32_t rank) {
  shape.q_rank = rank;
  return shape;
}

constexpr ModelShape cut(ModelShape shape, std::string_view name, int32_t layers) {
  shape.name = name;
  shape.layers = layers;
  return shape;
}

/// Few layers of the same parts, small enough for tests.
constexpr ModelShape shrunk(ModelShape shape, std::string_view name) {
  shape = cut(shape, name, 2);
  shape.width = shape.ffn = shape.expert_ffn = 256;
  shape.heads = 4;
  shape.kv_heads = shape.kv_heads > 1 ? 2 : 1;
  shape.head_dim = 32;
  if (shape.rotated > 0) shape.rotated = 32;
  if (shape.decay_rank > 0) {
    shape.decay_rank = shape.v_rank = 32;
    shape.gate_rank = 64;
  } else if (shape.state_heads > 0) {
    shape.layers = shape.attention_every;
    shape.state_heads = 2;
    shape.state_dim = 32;
  }
  shape.vocab = 512;
  shape.context = 2048;
  if (shape.experts > 0) {
    shape.experts = 4;
    shape.experts_used = 2;
  }
  if (shape.kv_rank > 0) shape.kv_rank = 256;
  return shape;
}

constexpr ModelShape kShapes[] = {
    {"tiny", 2, 256, 512, 4, 2, 64, 512, 2048, true},
    {"0.1B", 12, 768, 2048, 12, 4, 64, 32000, 8192, true},
    {"0.5B", 24, 1024, 4096, 16, 4, 64, 128256, 8192, true},
    {"S", 16, 2048, 8192, 32, 8, 64, 128256, 8192, true},
    {"M", 32, 4096, 14336, 32, 8, 128, 128256, 8192, false},
    {"13B", 40, 5120, 13824, 40, 40, 128, 32000, 4096, false},
    kGptOss,
    cut(kGptOss, "gpt-oss-20b-8", 8),
    shrunk(kGptOss, "gpt-oss-tiny"),
    kDeepSeek,
    cut(kDeepSeek, "deepseek-v2-lite-8", 8),
    cut(with_q_rank(kDeepSeek, 1536), "deepseek-v2-lite-q-8", 8),
    shrunk(kDeepSeek, "deepseek-tiny"),
    kQwen35,
    shrunk(kQwen35, "qwen3.5-tiny"),
    kLlada,
    cut(kLlada, "llada-8b-8", 8),
    shrunk(kLlada, "llada-tiny"),
    kRwkv7,
    shrunk(kRwkv7, "rwkv7-tiny"),
};

}  // namespace

std::span<const ModelShape> named_shapes() { return kShapes; }

std::string shape_names() {
  std::vector<std::string_view> names;
  for (const ModelShape& shape : kShapes) names.push_back(shape.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

Result<ModelShape> find_shape(std::string_view name) {
  for (const ModelShape& shape : kShapes) {
    if (shape.name == name) return shape;
  }
  return Error::not_found(fmt::format("no shape is called {}, want one of {}", name, shape_names()),
                          "shape");
}

}  // namespace hearth::models
