#include "tests/e2e/tiny_model.h"

#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "tests/unit/models/test_vocab.h"
#include "tests/unit/models/tiny_model.h"

namespace hearth::e2e {
namespace {

constexpr uint64_t kWidth = 64;
constexpr uint64_t kFfn = 96;
constexpr uint32_t kLayers = 2;
constexpr uint32_t kHeads = 4;
constexpr uint32_t kKvHeads = 2;

class Weights {
 public:
  Weights(models::GgufWriter* file, uint32_t seed) : file_(file), random_(seed) {}

  void matrix(const std::string& name, uint64_t inputs, uint64_t outputs, float gain) {
    std::normal_distribution<float> value(0.0f, gain / std::sqrt(static_cast<float>(inputs)));
    std::vector<float> values(inputs * outputs);
    for (float& each : values) each = value(random_);
    file_->add_floats(name, std::vector<uint64_t>{inputs, outputs}, kernels::DType::kF32, values);
  }
  void ones(const std::string& name, uint64_t size) {
    file_->add_floats(name, std::vector<uint64_t>{size}, kernels::DType::kF32,
                      std::vector<float>(size, 1.0f));
  }

 private:
  models::GgufWriter* file_;
  std::mt19937 random_;
};

}  // namespace

void write_tiny_model(const std::filesystem::path& path, uint32_t seed,
                      const std::string& chat_template, int32_t context) {
  const models::TestVocab vocab = models::small_vocab();
  models::GgufWriter file = models::vocab_file(vocab);
  if (!chat_template.empty()) file.set_string("tokenizer.chat_template", chat_template);
  file.set_u32("llama.context_length", context);
  file.set_u32("llama.embedding_length", kWidth);
  file.set_u32("llama.block_count", kLayers);
  file.set_u32("llama.feed_forward_length", kFfn);
  file.set_u32("llama.attention.head_count", kHeads);
  file.set_u32("llama.attention.head_count_kv", kKvHeads);
  file.set_f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);

  constexpr uint64_t kKvWidth = kWidth / kHeads * kKvHeads;
  Weights weights(&file, seed);
  weights.matrix("token_embd.weight", kWidth, vocab.tokens.size(), 4.0f);
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    const std::string block = "blk." + std::to_string(layer) + ".";
    weights.ones(block + "attn_norm.weight", kWidth);
    weights.matrix(block + "attn_q.weight", kWidth, kWidth, 1.5f);
    weights.matrix(block + "attn_k.weight", kWidth, kKvWidth, 1.5f);
    weights.matrix(block + "attn_v.weight", kWidth, kKvWidth, 1.0f);
    weights.matrix(block + "attn_output.weight", kWidth, kWidth, 1.0f);
    weights.ones(block + "ffn_norm.weight", kWidth);
    weights.matrix(block + "ffn_gate.weight", kWidth, kFfn, 1.0f);
    weights.matrix(block + "ffn_up.weight", kWidth, kFfn, 1.0f);
    weights.matrix(block + "ffn_down.weight", kFfn, kWidth, 1.0f);
  }
  weights.ones("output_norm.weight", kWidth);
  weights.matrix("output.weight", kWidth, vocab.tokens.size(), 2.0f);
  const Result<void> written = file.write(path);
  REQUIRE_MESSAGE(written.ok(), (written.ok() ? "" : written.error().message));
}

void write_tiny_heads(const std::filesystem::path& path, bool other_width) {
  models::GgufWriter file;
  file.set_string("general.architecture", "medusa");
  file.set_u32("medusa.head_count", 2);
  file.set_u32("medusa.block_count", 0);
  file.set_u32("medusa.embedding_length", other_width ? kWidth + 1 : kWidth);
  file.set_u32("medusa.vocab_size", static_cast<uint32_t>(models::small_vocab().tokens.size()));
  REQUIRE(file.write(path).ok());
}

void write_tiny_eagle3(const std::filesystem::path& path, bool other_width) {
  const auto vocab = static_cast<uint32_t>(models::small_vocab().tokens.size());
  REQUIRE(models::tiny_eagle3(other_width ? kWidth + 1 : kWidth, vocab).write(path).ok());
}

void write_tiny_dflash(const std::filesystem::path& path, bool other_width) {
  const auto vocab = static_cast<uint32_t>(models::small_vocab().tokens.size());
  REQUIRE(models::tiny_dflash(other_width ? kWidth + 1 : kWidth, vocab).write(path).ok());
}

void write_tiny_adapter(const std::filesystem::path& path, uint32_t seed, AdapterFlaw flaw) {
  constexpr uint64_t kRank = 4;
  models::GgufWriter file;
  file.set_string("general.type", "adapter");
  file.set_string("general.architecture", "llama");
  file.set_string("adapter.type", "lora");
  file.set_f32("adapter.lora.alpha", 8);
  Weights weights(&file, seed);
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    for (const char* part : {"attn_q", "attn_output"}) {
      const std::string name = "blk." + std::to_string(layer) + "." + part + ".weight";
      const bool wrong = layer == 0 && name.find("attn_q") != name.npos;
      weights.matrix(name + ".lora_a",
                     wrong && flaw == AdapterFlaw::kOtherWidth ? kWidth + 1 : kWidth, kRank,
                     wrong && flaw == AdapterFlaw::kNan ? INFINITY : 1.0f);
      weights.matrix(name + ".lora_b", kRank, kWidth, 1.0f);
    }
  }
  REQUIRE(file.write(path).ok());
}

}  // namespace hearth::e2e
