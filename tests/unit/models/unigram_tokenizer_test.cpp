#include "models/tokenizer/kinds/unigram_tokenizer.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "models/gguf/gguf_file.h"
#include "tests/unit/models/load_vocabulary.h"
#include "tests/unit/models/test_vocab.h"

namespace hearth::models {
namespace {

using Strings = std::vector<std::string>;
const std::string kSpace = "\xE2\x96\x81";

TestVocab words() {
  TestVocab v;
  v.add("<pad>", 0, 3);
  v.add("</s>", 0, 3);
  v.add("<unk>", 0, 2);
  v.add(kSpace, -2, 1);
  v.add("a", -3, 1);
  v.add("b", -3, 1);
  v.add("ab", -4, 1);
  v.add(kSpace + "a", -3.5, 1);
  v.add("bab", -6.5, 1);
  v.add("fi", -4, 1);
  v.add("unused", 0, 5);
  v.add("<x>", 0, 4);
  return v;
}

GgufWriter t5_file(const TestVocab& v) {
  GgufWriter w = vocab_file("t5", v);
  w.set_u32("tokenizer.ggml.eos_token_id", 1);
  return w;
}

Strings entries(const GgufWriter& writer, std::string_view text) {
  const auto t = load_vocabulary(writer);
  REQUIRE(t.ok());
  Strings out;
  for (const int32_t id : (*t)->encode(text, {})) {
    std::string entry((*t)->entry(id));
    for (size_t at; (at = entry.find(kSpace)) != std::string::npos;) entry.replace(at, 3, "_");
    out.push_back(entry);
  }
  return out;
}

GgufWriter bare(const TestVocab& v) {
  GgufWriter w = t5_file(v);
  w.set_bool("tokenizer.ggml.add_space_prefix", false);
  w.set_bool("tokenizer.ggml.remove_extra_whitespaces", false);
  return w;
}

/// A charsmap of two keys: "A" becomes "a", "BC" becomes "fi ".
std::vector<int32_t> charsmap() {
  std::vector<uint32_t> units(1024);
  const auto unit = [](uint32_t offset, bool ends, uint32_t label) {
    return offset << 10 | uint32_t{ends} << 8 | label;
  };
  units[0] = unit(256, false, 0);
  units[256 ^ 'A'] = unit((256 ^ 'A') ^ 600, true, 'A');
  units[600] = 1U << 31 | 0;
  units[256 ^ 'B'] = unit((256 ^ 'B') ^ 'C' ^ 700, false, 'B');
  units[700] = unit(700 ^ 800, true, 'C');
  units[800] = 1U << 31 | 2;
  std::vector<int32_t> bytes;
  const auto append = [&](uint32_t value) {
    for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<int32_t>(value >> (8 * i) & 0xFF));
  };
  append(static_cast<uint32_t>(units.size() * 4));
  for (const uint32_t u : units) append(u);
  for (const char c : std::string_view("a\0fi \0", 6)) bytes.push_back(c);
  return bytes;
}

TEST_CASE("the best sum of scores wins, not the longest token") {
  CHECK(entries(t5_file(words()), "ab") == Strings{"_", "ab"});    // -6, "_a" "b" is -6.5
  CHECK(entries(t5_file(words()), "a") == Strings{"_a"});          // -3.5, not -5
  CHECK(entries(bare(words()), "bab") == Strings{"bab"});          // -6.5, not -7
  CHECK(entries(bare(words()), "babab") == Strings{"bab", "ab"});  // -10.5, not "b" "ab" "ab"
  CHECK(entries(t5_file(words()), "").empty());
  CHECK(entries(bare(words()), "unused") == Strings{"<unk>"});
}

TEST_CASE("spaces in front, between and at the end") {
  CHECK(entries(t5_file(words()), "  a   b  ") == Strings{"_a", "_", "b"});
  CHECK(entries(t5_file(words()), "   ").empty());
  CHECK(entries(bare(words()), " a  ") == Strings{"_a", "_", "_"});
  GgufWriter kept = t5_file(words());
  kept.set_bool("tokenizer.ggml.remove_extra_whitespaces", false);
  CHECK(entries(kept, " a") == Strings{"_", "_a"});
  const auto t = load_vocabulary(t5_file(words()));
  CHECK((*t)->adds_space_prefix());
  StreamingDetokenizer detokenizer(**t, true);
  std::string text;
  for (const int32_t id : (*t)->encode("ab a", {})) text += detokenizer.push(id);
  CHECK(text + detokenizer.finish() == "ab a");
}

TEST_CASE("text without a token is one unknown token, or bytes") {
  CHECK(entries(bare(words()),
                "a\xC3\xA9\xC3\xA8z\xFF"
                "b") == Strings{"a", "<unk>", "b"});
  TestVocab v = words();
  for (int b = 0; b < 256; ++b) {
    constexpr char kHex[] = "0123456789ABCDEF";
    v.add(std::string("<0x") + kHex[b / 16] + kHex[b % 16] + ">", 0, 6);
  }
  CHECK(entries(bare(v), "a\xC3\xA9") == Strings{"a", "<0xC3>", "<0xA9>"});
}

TEST_CASE("special tokens") {
  CHECK(entries(bare(words()), "a<x>b") == Strings{"a", "<x>", "b"});
  const auto t = load_vocabulary(bare(words()));
  for (const int32_t id : (*t)->encode("</s>", {})) CHECK_FALSE((*t)->is_control(id));
  CHECK((*t)->encode("a</s>", {.parse_special = true}) == std::vector<int32_t>{4, 1});
  CHECK((*t)->is_end_of_generation(1));
}

TEST_CASE("the charsmap replaces the longest key at each place") {
  GgufWriter w = bare(words());
  w.set_i32s("tokenizer.ggml.precompiled_charsmap", charsmap());
  CHECK(entries(w, "Ab") == Strings{"ab"});
  CHECK(entries(w, "BCa") == Strings{"fi", "_a"});
  CHECK(entries(w, "B") == Strings{"<unk>"});
  CHECK(entries(w, "aB") == Strings{"a", "<unk>"});
}

TEST_CASE("a broken charsmap is refused, or changes nothing out of bounds") {
  const auto refused = [](std::vector<int32_t> bytes, const std::string& why) {
    GgufWriter w = bare(words());
    w.set_i32s("tokenizer.ggml.precompiled_charsmap", bytes);
    const auto loaded = load_vocabulary(w);
    REQUIRE_FALSE(loaded.ok());
    INFO(loaded.error().message);
    CHECK(loaded.error().code == ErrorCode::kCorrupt);
    CHECK(loaded.error().message.starts_with("tokenizer.ggml.precompiled_charsmap: "));
    CHECK(loaded.error().message.find(why) != std::string::npos);
  };
  const std::vector<int32_t> good = charsmap();
  refused({1, 2}, "want the length");
  std::vector<int32_t> bytes = good;
  bytes[0] = 1;
  refused(bytes, "want an index of 4097 bytes");
  bytes = good;
  bytes[2] = 255;
  refused(bytes, "want an index");
  bytes = good;
  bytes.back() = 'x';
  refused(bytes, "the last text has no end");
  bytes = good;
  bytes[9] = 256;
  refused(bytes, "256 at 9");
  bytes = good;
  bytes.insert(bytes.end() - 1, 300, 'y');
  refused(bytes, "text of 303 bytes");
  refused(std::vector<int32_t>(good.begin(), good.begin() + 4 + 4096), "texts after it");

  // Links anywhere: nothing outside is read (the sanitizers check), and every text still encodes.
  std::mt19937 random(4);
  for (int round = 0; round < 200; ++round) {
    bytes = good;
    for (size_t i = 4; i < 4100; ++i) {
      if (random() % 3 == 0) bytes[i] = static_cast<int32_t>(random() % 256);
    }
    GgufWriter w = bare(words());
    w.set_i32s("tokenizer.ggml.precompiled_charsmap", bytes);
    const auto t = load_vocabulary(w);
    REQUIRE(t.ok());
    for (const int32_t id : (*t)->encode("aAbBCxyzBBAAA\xC3\xA9", {}))
      CHECK(id < (*t)->vocab_size());
  }
}

// All splits of `text`, by trying all of them.
double best_score(const TestVocab& v, std::string_view text) {
  if (text.empty()) return 0;
  double best = -1e30;
  for (size_t id = 3; id < v.tokens.size(); ++id) {
    if (text.starts_with(v.tokens[id]))
      best = std::max(best, v.scores[id] + best_score(v, text.substr(v.tokens[id].size())));
  }
  return best;
}

TEST_CASE("no other split of a random text scores better") {
  std::mt19937 random(9);
  for (int round = 0; round < 200; ++round) {
    TestVocab v;
    v.add("<pad>", 0, 3);
    v.add("</s>", 0, 3);
    v.add("<unk>", 0, 2);
    for (const char* letter : {"a", "b", "c"})
      v.add(letter, -static_cast<float>(1 + random() % 8), 1);
    for (int i = 0; i < 8; ++i) {
      std::string token;
      for (uint32_t length = 2 + random() % 3; length > 0; --length)
        token.push_back(static_cast<char>('a' + random() % 3));
      if (std::find(v.tokens.begin(), v.tokens.end(), token) != v.tokens.end()) continue;
      v.add(token, -static_cast<float>(1 + random() % 16), 1);
    }
    const auto t = load_vocabulary(bare(v));
    REQUIRE(t.ok());
    std::string text, pieces;
    for (uint32_t length = 1 + random() % 12; length > 0; --length)
      text.push_back(static_cast<char>('a' + random() % 3));
    double score = 0;
    for (const int32_t id : (*t)->encode(text, {})) {
      score += v.scores[static_cast<size_t>(id)];
      pieces += (*t)->piece(id);
    }
    REQUIRE(pieces == text);
    REQUIRE(score == best_score(v, text));
  }
}

TEST_CASE("a megabyte of one character takes no longer than a megabyte of a text") {
  // Quadratic work would take hours here, not seconds: this test's time limit checks it.
  const auto t = load_vocabulary(bare(words()));
  for (const char* part : {"a", "b", " ", "\xFF", "\xC3\xA9", "ba"}) {
    std::string text;
    while (text.size() < (1 << 20)) text += part;
    REQUIRE_FALSE((*t)->encode(text, {}).empty());
  }
}

TEST_CASE("missing or too few scores, no unknown token") {
  const auto refused = [](const GgufWriter& w, const std::string& named) {
    const auto loaded = load_vocabulary(w);
    REQUIRE_FALSE(loaded.ok());
    CHECK(loaded.error().code == ErrorCode::kCorrupt);
    INFO(loaded.error().message);
    CHECK(loaded.error().message.find(named) != std::string::npos);
  };
  TestVocab v = words();
  v.scores.pop_back();
  refused(t5_file(v), "tokenizer.ggml.scores: 11 scores, want one for each of 12 tokens");
  v = words();
  v.types[2] = 1;
  refused(t5_file(v), "tokenizer.ggml.unknown_token_id");
  GgufWriter none;
  none.set_string("tokenizer.ggml.model", "t5");
  none.set_strings("tokenizer.ggml.tokens", words().tokens);
  refused(none, "tokenizer.ggml.scores: missing");
}

}  // namespace
}  // namespace hearth::models
