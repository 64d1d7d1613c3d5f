// Pauses while a text is encoded: they come often, and the ids equal those of encoding in one go.

#include <doctest/doctest.h>

#include <random>

#include "models/gguf/gguf_file.h"
#include "models/tokenizer/tokenizer.h"
#include "tests/unit/models/bpe_vocab.h"
#include "tests/unit/models/load_vocabulary.h"
#include "tests/unit/models/test_vocab.h"

namespace hearth::models {
namespace {

const std::string kSpace = "\xE2\x96\x81";

TestVocab unigram_vocab() {
  TestVocab v;
  v.add("<pad>", 0, 3);
  v.add("</s>", 0, 3);
  v.add("<unk>", 0, 2);
  v.add(kSpace, -2, 1);
  for (const char* token : {"a", "b", "c", "t", "h", "e"}) v.add(token, -4, 1);
  v.add("ab", -5, 1);
  v.add(kSpace + "the", -3, 1);
  return v;
}

GgufWriter unigram_file() {
  GgufWriter w = vocab_file("t5", unigram_vocab());
  w.set_u32("tokenizer.ggml.eos_token_id", 1);
  return w;
}

GgufWriter wordpiece_file() {
  TestVocab v;
  for (const char* token : {"[PAD]", "[CLS]", "[SEP]"}) v.add(token, 0, 3);
  v.add("[UNK]", 0, 2);
  for (const char* word : {"the", "a", "b", "abc"}) v.add(kSpace + word, 0, 1);
  for (const char* rest : {"a", "b", "c"}) v.add(rest, 0, 1);
  GgufWriter w = vocab_file("bert", v);
  w.set_u32("tokenizer.ggml.bos_token_id", 1);
  return w;
}

// Words of few letters, control tokens' spellings, broken UTF-8, and some long runs.
std::string random_text(std::mt19937_64& random, size_t bytes) {
  const std::vector<std::string> parts = {"the ",     "abc",  "a",      "b ", " ",      "\n",
                                          "\xC3\xA9", "\xFF", "<tool>", "12", "<|end|>"};
  std::string out;
  while (out.size() < bytes) {
    const std::string& part = parts[random() % parts.size()];
    for (uint64_t n = random() % 50 == 0 ? random() % 500 : 1; n > 0; --n) out += part;
  }
  return out;
}

class Nested final : public EncodePause {
 public:
  explicit Nested(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  void pause() override {
    ++count;
    CHECK(tokenizer_.encode("the abc", {}) == expected_);
  }
  size_t count = 0;

 private:
  const Tokenizer& tokenizer_;
  const std::vector<int32_t> expected_ = tokenizer_.encode("the abc", {});
};

TEST_CASE("a text encoded with pauses has the ids of a text encoded in one go") {
  std::mt19937_64 random(3);
  const auto tokenizers = {load_vocabulary(vocab_file(small_vocab())).value(),
                           load_vocabulary(vocab_file(small_bpe_vocab(), "gpt-2")).value(),
                           load_vocabulary(unigram_file()).value(),
                           load_vocabulary(vocab_file("plamo2", small_vocab())).value(),
                           load_vocabulary(vocab_file("rwkv", small_vocab())).value(),
                           load_vocabulary(wordpiece_file()).value()};
  for (const auto& tokenizer : tokenizers) {
    CAPTURE(tokenizer->kind());
    for (const size_t bytes : {size_t{0}, size_t{100}, size_t{20'000}, size_t{500'000}}) {
      const std::string text = random_text(random, bytes);
      for (const bool special : {false, true}) {
        Nested pause(*tokenizer);
        const auto ids = tokenizer->encode(text, {.parse_special = special, .pause = &pause});
        CHECK(ids == tokenizer->encode(text, {.parse_special = special}));
        // A piece is longer than a slice at most by the longest run.
        CHECK(pause.count >= text.size() / (2 * Tokenizer::kSliceBytes));
        CHECK(pause.count <= 2 * text.size() / Tokenizer::kSliceBytes);
      }
    }
  }
}

}  // namespace
}  // namespace hearth::models
