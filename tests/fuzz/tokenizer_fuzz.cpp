// Any text with a vocabulary of each kind, and with every splitting rule.

#include <memory>
#include <string>
#include <vector>

#include "models/gguf/gguf_file.h"
#include "tests/fuzz/check_text.h"
#include "tests/fuzz/input.h"
#include "tests/unit/models/bpe_vocab.h"
#include "tests/unit/models/test_vocab.h"

namespace {

using namespace hearth;
using namespace hearth::models;

std::unique_ptr<Tokenizer> load(const GgufWriter& writer) {
  const std::vector<std::byte> bytes = writer.bytes();
  const auto file = GgufFile::parse(bytes, "fuzz");
  HEARTH_CHECK(file.ok(), "{}", file.error().message);
  auto tokenizer = load_tokenizer(file.value());
  HEARTH_CHECK(tokenizer.ok(), "{}", tokenizer.error().message);
  return std::move(tokenizer).value();
}

GgufWriter words_file(const char* kind) {
  TestVocab v = small_vocab();
  v.types[0] = 2;
  GgufWriter w = vocab_file(kind, v);
  w.set_u32("tokenizer.ggml.unknown_token_id", 0);
  w.set_u32("tokenizer.ggml.bos_token_id", 1);
  return w;
}

std::vector<std::unique_ptr<Tokenizer>> make_all() {
  std::vector<std::unique_ptr<Tokenizer>> all;
  all.push_back(load(vocab_file(small_vocab())));
  all.push_back(load(words_file("bert")));
  all.push_back(load(words_file("t5")));
  all.push_back(load(words_file("plamo2")));
  for (const char* rule : {"default", "gpt-2", "starcoder", "falcon", "llama-bpe", "qwen2",
                           "qwen35", "seed-coder", "minicpm5", "tekken", "gpt-4o", "deepseek-llm",
                           "deepseek-coder", "deepseek-v3", "bloom", "viking", "mpt", "kimi-k2"}) {
    all.push_back(load(vocab_file(small_bpe_vocab(), rule)));
  }
  all.push_back(load(vocab_file("rwkv", small_vocab())));
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::vector<std::unique_ptr<Tokenizer>> all = make_all();
  fuzz::Input input(data, size);
  const auto& tokenizer = input.pick(std::span(all));
  const bool parse_special = input.flag();
  fuzz::check_text(*tokenizer, input.rest(), parse_special);
  return 0;
}
