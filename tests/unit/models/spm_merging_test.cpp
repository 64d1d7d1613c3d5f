// The "llama" tokenizer compared with SentencePiece's definition of merging: over the whole text,
// one symbol after the other, without an index.

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "models/gguf/gguf_file.h"
#include "models/tokenizer/text/utf8.h"
#include "models/tokenizer/tokenizer.h"
#include "tests/skip.h"
#include "tests/unit/models/test_vocab.h"

namespace hearth::models {
namespace {

const std::string kSpace = "\xE2\x96\x81";

// Ids of `text`, in which spaces are kSpace already. All bytes have tokens, from id 3 on.
std::vector<int32_t> merge_by_the_book(const TestVocab& v, const std::string& text) {
  const auto find = [&](const std::string& piece) {
    for (size_t id = v.tokens.size(); id-- > 0;) {
      if (v.types[id] == 1 && v.tokens[id] == piece) return static_cast<int32_t>(id);
    }
    return -1;
  };
  std::vector<std::string> symbols;
  for (size_t at = 0; at < text.size(); at += symbols.back().size())
    symbols.push_back(text.substr(at, front_char(std::string_view(text).substr(at)).bytes));
  while (true) {
    int best = -1;
    float best_score = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const int32_t id = find(symbols[i] + symbols[i + 1]);
      if (id < 0 || (best >= 0 && v.scores[static_cast<size_t>(id)] <= best_score)) continue;
      best = static_cast<int>(i);
      best_score = v.scores[static_cast<size_t>(id)];
    }
    if (best < 0) break;
    symbols[static_cast<size_t>(best)] += symbols[static_cast<size_t>(best) + 1];
    symbols.erase(symbols.begin() + best + 1);
  }
  std::vector<int32_t> ids;
  for (const std::string& symbol : symbols) {
    const int32_t id = find(symbol);
    if (id >= 0) {
      ids.push_back(id);
    } else {
      for (const char byte : symbol) ids.push_back(3 + static_cast<uint8_t>(byte));
    }
  }
  return ids;
}

TEST_CASE("indexed merging equals the reference merging") {
  std::mt19937 random(5);
  const auto below = [&](size_t bound) { return random() % bound; };
  // Few characters make many ties; some are in no token, or only inside tokens, or not UTF-8.
  const std::vector<std::string> letters = {"a", "b",        kSpace, "\xC3\xA9",
                                            "c", "\xE2\x82", "\xFF", "\xF0\x9F\x98\x80"};
  const int rounds = tests::full_counts() ? 3000 : 300;
  for (int round = 0; round < rounds; ++round) {
    TestVocab v = small_vocab();
    v.tokens.resize(259);
    v.scores.resize(259);
    v.types.resize(259);
    const size_t num_letters = 3 + below(letters.size() - 2);
    for (size_t i = 0; i < num_letters; ++i) {
      if (below(3) != 0) v.add(letters[i], -static_cast<float>(below(4)), 1);
    }
    for (size_t n = 2 + below(30); n > 0; --n) {
      std::string token;
      for (size_t length = 2 + below(5); length > 0; --length) token += letters[below(num_letters)];
      v.add(token, -static_cast<float>(below(6)), 1);
    }
    GgufWriter w = vocab_file(v);
    w.set_bool("tokenizer.ggml.add_space_prefix", false);
    const std::vector<std::byte> bytes = w.bytes();
    const auto file = GgufFile::parse(bytes, "vocab");
    REQUIRE(file.ok());
    const auto t = load_tokenizer(*file);
    REQUIRE(t.ok());
    for (int i = 0; i < 20; ++i) {
      std::string text;
      for (size_t length = 1 + below(i == 0 ? 150 : 30); length > 0; --length)
        text += letters[below(letters.size())];
      INFO("round " << round << ": " << text);
      REQUIRE((*t)->encode(text, {.add_bos = false}) == merge_by_the_book(v, text));
    }
  }
}

}  // namespace
}  // namespace hearth::models
