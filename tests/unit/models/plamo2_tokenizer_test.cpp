#include "models/tokenizer/kinds/plamo2_tokenizer.h"

#include <doctest/doctest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "models/gguf/gguf_file.h"
#include "tests/paths.h"
#include "tests/unit/models/load_vocabulary.h"
#include "tests/unit/models/test_vocab.h"

namespace hearth::models {
namespace {

using Ids = std::vector<int32_t>;

/// Control tokens and bytes; the next token has the id kFirst.
TestVocab bytes_alone() {
  TestVocab v = small_vocab();
  v.tokens.resize(3 + 256);
  v.scores.resize(v.tokens.size());
  v.types.resize(v.tokens.size());
  return v;
}
constexpr int32_t kFirst = 3 + 256;
constexpr int32_t byte_id(uint8_t byte) { return 3 + byte; }

std::unique_ptr<Tokenizer> load(const TestVocab& v) {
  auto loaded = load_vocabulary(vocab_file("plamo2", v));
  REQUIRE_MESSAGE(loaded.ok(), loaded.error().message);
  return std::move(loaded).value();
}

TEST_CASE("random texts have the published tokenizer's ids") {
  std::ifstream in(hearth::tests::source_path("tests/golden/encoders/plamo2.json"));
  REQUIRE(in.good());
  const auto recorded = nlohmann::json::parse(in);
  TestVocab v;
  for (const auto& each : recorded.at("tokens")) {
    const auto type = each.at(2).get<std::string>();
    v.add(each.at(0), each.at(1),
          type == "UNKNOWN"   ? 2
          : type == "CONTROL" ? 3
          : type == "BYTE"    ? 6
                              : 1);
  }
  const auto t = load(v);
  CHECK(t->kind() == "plamo2");
  CHECK_FALSE(t->adds_space_prefix());
  for (const auto& each : recorded.at("cases")) {
    const auto text = each.at("text").get<std::string>();
    const Ids ids = t->encode(text, {});
    CHECK_MESSAGE(ids == each.at("ids").get<Ids>(), text);
    std::string back;
    for (const int32_t id : ids) back += t->piece(id);
    CHECK(back == text);
  }
}

TEST_CASE("of equal sums the one with the longer token in front wins") {
  TestVocab v = bytes_alone();
  v.add("a", -1, 1);
  v.add("ab", -2, 1);
  v.add("b", -1, 1);
  v.add("bc", -2, 1);
  v.add("c", -1, 1);
  CHECK(load(v)->encode("abc", {}) == Ids{kFirst + 1, kFirst + 4});
  v.scores[kFirst + 3] = -1.9999f;  // sums are of 1/10000
  CHECK(load(v)->encode("abc", {}) == Ids{kFirst, kFirst + 3});
  v.scores[kFirst + 3] = -1.99999f;
  CHECK(load(v)->encode("abc", {}) == Ids{kFirst + 1, kFirst + 4});
}

TEST_CASE("control tokens, unused ones and impossible scores are never spelled") {
  TestVocab v = bytes_alone();
  v.add("<|end|>", 0, 3);
  v.add("x", 0, 5);
  v.add("y", 1e30f, 1);
  v.add("z", -1e30f, 1);
  v.add("w", -2000, 1);
  v.add("\xE3\x81", 5, 1);  // half a character
  v.add("", 5, 1);
  const auto t = load(v);
  for (const uint8_t byte : {uint8_t{'x'}, uint8_t{'y'}, uint8_t{'z'}, uint8_t{'w'}}) {
    CHECK(t->encode(std::string(1, static_cast<char>(byte)), {}) == Ids{byte_id(byte)});
  }
  CHECK(t->encode("<|end|>", {}).size() == 7);
  CHECK(t->encode("<|end|>", {.parse_special = true}) == Ids{kFirst});
  CHECK(t->encode("\xE3\x81\x82", {}) == Ids{byte_id(0xE3), byte_id(0x81), byte_id(0x82)});
  CHECK(t->encode("\xE3\x81", {}) == Ids{byte_id(0xE3), byte_id(0x81)});
}

TEST_CASE("a vocabulary without a byte token or with too few scores is refused") {
  TestVocab v = bytes_alone();
  v.types[byte_id(0x7F)] = 1;
  check_refused(vocab_file("plamo2", v), ErrorCode::kCorrupt, "no byte token <0x7F>");
  v = bytes_alone();
  v.scores.pop_back();
  check_refused(vocab_file("plamo2", v), ErrorCode::kCorrupt, "tokenizer.ggml.scores");
}

}  // namespace
}  // namespace hearth::models
