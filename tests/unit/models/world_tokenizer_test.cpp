#include "models/tokenizer/kinds/world_tokenizer.h"

#include <doctest/doctest.h>
#include <fmt/core.h>

#include <random>

#include "models/gguf/gguf_file.h"
#include "tests/unit/models/load_vocabulary.h"
#include "tests/unit/models/test_vocab.h"

namespace hearth::models {
namespace {

using Ids = std::vector<int32_t>;

/// <s>, then each byte as converters write it; the next token has the id kFirst.
TestVocab world_bytes() {
  TestVocab v;
  v.add("<s>", 0, 3);
  for (int b = 0; b < 256; ++b) {
    const bool printed = b >= 0x20 && b < 0x7F && b != '\\' && b != '\'';
    v.add(b == '\n'   ? "\\n"
          : b == '\t' ? "\\t"
          : b == '\r' ? "\\r"
          : b == '\\' ? "\\\\"
          : b == '\'' ? "\\'"
          : printed   ? std::string(1, static_cast<char>(b))
                      : fmt::format("\\x{:02x}", b),
          0, 1);
  }
  v.scores.clear();
  return v;
}
constexpr int32_t kFirst = 1 + 256;
constexpr int32_t byte_id(uint8_t byte) { return 1 + byte; }

std::unique_ptr<Tokenizer> load(const TestVocab& v) {
  auto loaded = load_vocabulary(vocab_file("rwkv", v));
  REQUIRE_MESSAGE(loaded.ok(), loaded.error().message);
  return std::move(loaded).value();
}

void add(TestVocab& v, const std::string& token, int32_t type = 1) {
  v.tokens.push_back(token);
  v.types.push_back(type);
}

TEST_CASE("every escape stands for its bytes, in text and in pieces") {
  TestVocab v = world_bytes();
  add(v, "\\n\\n");
  add(v, "a\\\\b\\'c");
  add(v, "\\xe4\\xb8");  // half a character
  add(v, "\\xF0\\x9f\\x98\\x80");
  const auto t = load(v);
  CHECK(t->kind() == "rwkv");
  CHECK_FALSE(t->adds_space_prefix());
  for (int b = 0; b < 256; ++b) {
    const std::string byte(1, static_cast<char>(b));
    CHECK(t->encode(byte, {}) == Ids{byte_id(static_cast<uint8_t>(b))});
    CHECK(t->piece(byte_id(static_cast<uint8_t>(b))) == byte);
  }
  CHECK(t->encode("\n\n\n", {}) == Ids{kFirst, byte_id('\n')});
  CHECK(t->encode("a\\b'c", {}) == Ids{kFirst + 1});
  CHECK(t->encode("\xE4\xB8\xAD", {}) == Ids{kFirst + 2, byte_id(0xAD)});
  CHECK(t->encode("\xF0\x9F\x98\x80", {}) == Ids{kFirst + 3});
  CHECK(t->piece(kFirst + 2) == "\xE4\xB8");
  CHECK(t->max_piece_bytes() == 5);
}

/// The definition: at each place the longest entry that matches.
Ids longest_matches(const std::vector<std::string>& pieces, std::string_view text) {
  Ids ids;
  while (!text.empty()) {
    size_t best = 0;
    for (size_t i = 1; i < pieces.size(); ++i) {
      if (!text.starts_with(pieces[i]) || (best > 0 && pieces[i].size() < pieces[best].size())) {
        continue;
      }
      best = i;
    }
    ids.push_back(static_cast<int32_t>(best));
    text.remove_prefix(pieces[best].size());
  }
  return ids;
}

TEST_CASE("random texts are cut into the longest tokens, and their pieces are the text") {
  std::mt19937_64 random(7);
  const auto word = [&](size_t most) {
    std::string out;
    for (size_t n = 1 + random() % most; n > 0; --n) out.push_back("ab \xC3\n\\"[random() % 6]);
    return out;
  };
  for (int round = 0; round < 20; ++round) {
    TestVocab v = world_bytes();
    for (int i = 0; i < 40; ++i) {
      std::string entry;
      for (const char c : word(6)) entry += c == '\n' ? "\\n" : c == '\\' ? "\\\\" : std::string{c};
      add(v, entry);
    }
    const auto t = load(v);
    std::vector<std::string> pieces;
    for (int32_t id = 0; id < t->vocab_size(); ++id) pieces.emplace_back(t->piece(id));
    for (int i = 0; i < 50; ++i) {
      const std::string text = word(60);
      const Ids ids = t->encode(text, {});
      CHECK(ids == longest_matches(pieces, text));
      std::string back;
      for (const int32_t id : ids) back += t->piece(id);
      CHECK(back == text);
    }
  }
}

TEST_CASE("control tokens and unused ones are never spelled; the end of a turn may be text") {
  TestVocab v = world_bytes();
  add(v, "\\n\\n");
  add(v, "[PAD9]", 5);
  add(v, "<|fim|>", 4);
  GgufWriter file = vocab_file("rwkv", v);
  file.set_u32("tokenizer.ggml.bos_token_id", 0);
  file.set_u32("tokenizer.ggml.eos_token_id", 0);
  file.set_u32("tokenizer.ggml.eot_token_id", kFirst);
  auto loaded = load_vocabulary(file);
  REQUIRE(loaded.ok());
  const auto t = std::move(loaded).value();
  CHECK(t->encode("<s>", {}) == Ids{byte_id('<'), byte_id('s'), byte_id('>')});
  CHECK(t->encode("<s>a", {.parse_special = true}) == Ids{0, byte_id('a')});
  CHECK(t->encode("[PAD9]", {}).size() == 6);
  CHECK(t->encode("<|fim|>", {}) == Ids{kFirst + 2});
  CHECK(t->encode("\n\n", {}) == Ids{kFirst});
  CHECK(t->is_end_of_generation(kFirst));
  CHECK_FALSE(t->is_control(kFirst));
}

TEST_CASE("a broken escape or a byte without a token is refused") {
  for (const char* entry : {"a\\", "\\x", "\\x4", "\\xg0", "\\x0g", "\\x-1", "b\\x 1"}) {
    TestVocab v = world_bytes();
    add(v, entry);
    check_refused(vocab_file("rwkv", v), ErrorCode::kCorrupt, "tokenizer.ggml.tokens: token 257");
    v.types.back() = 3;  // a control token has no text
    CHECK(load(v)->piece(kFirst).empty());
  }
  for (const int b : {0, 0x7F, 0xFF}) {
    TestVocab v = world_bytes();
    v.types[static_cast<size_t>(byte_id(static_cast<uint8_t>(b)))] = 5;
    check_refused(vocab_file("rwkv", v), ErrorCode::kCorrupt,
                  fmt::format("no token for the byte 0x{:02X}", b));
  }
}

}  // namespace
}  // namespace hearth::models
