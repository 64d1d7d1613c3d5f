#include "models/tokenizer/tokenizer.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <random>

#include "models/gguf/gguf_file.h"
#include "tests/skip.h"
#include "tests/unit/models/load_vocabulary.h"
#include "tests/unit/models/published_cases.h"
#include "tests/unit/models/test_vocab.h"

namespace hearth::models {
namespace {

std::unique_ptr<Tokenizer> small() {
  auto loaded = load_vocabulary(vocab_file(small_vocab()));
  REQUIRE(loaded.ok());
  return std::move(loaded).value();
}

std::vector<std::string> entries(const Tokenizer& t, const std::vector<int32_t>& ids) {
  std::vector<std::string> out;
  for (const int32_t id : ids) out.emplace_back(t.entry(id));
  return out;
}

std::vector<std::string> encode(const Tokenizer& t, std::string_view text,
                                const EncodeOptions& options = {}) {
  return entries(t, t.encode(text, options));
}

std::string decode(const Tokenizer& t, const std::vector<int32_t>& ids) {
  StreamingDetokenizer detokenizer(t, true);
  std::string text;
  for (const int32_t id : ids) text += detokenizer.push(id);
  return text + detokenizer.finish();
}

using Strings = std::vector<std::string>;
const std::string kSpace = "\xE2\x96\x81";

TEST_CASE("pairs merge by score, the leftmost first on ties") {
  const auto t = small();
  // "ab" has the best score of all, so "▁a" never forms; then "abc" from "ab" and "c".
  CHECK(encode(*t, "abc") == Strings{"<s>", kSpace, "abc"});
  CHECK(encode(*t, "bcbc", {.add_bos = false}) == Strings{kSpace, "bc", "bc"});
  CHECK(encode(*t, "the", {.add_bos = false}) == Strings{kSpace + "the"});

  TestVocab v = small_vocab();
  v.add("xx", 5, 1);
  const auto loaded = load_vocabulary(vocab_file(v));
  CHECK(encode(*loaded.value(), "xxx", {.add_bos = false}) == Strings{kSpace, "xx", "x"});
}

/// A file of the kind "gemma4".
GgufWriter listed_file(const TestVocab& v, const std::vector<std::string>& merges) {
  GgufWriter w;
  w.set_string("general.architecture", "gemma4");
  w.set_string("tokenizer.ggml.model", "gemma4");
  w.set_strings("tokenizer.ggml.tokens", v.tokens);
  w.set_i32s("tokenizer.ggml.token_type", v.types);
  w.set_strings("tokenizer.ggml.merges", merges);
  w.set_u32("tokenizer.ggml.bos_token_id", 1);
  w.set_u32("tokenizer.ggml.eos_token_id", 2);
  return w;
}

TEST_CASE(
    "gemma4: pairs merge in the order of the list, over spaces and newlines as over letters") {
  TestVocab v = small_vocab();
  v.add("\n", 0, 1);
  v.add("\n\n\n", 0, 1);
  v.add(kSpace + "b", 0, 1);
  v.add("a" + kSpace + "b", 0, 1);
  const auto loaded =
      load_vocabulary(listed_file(v, {"b c", "a bc", "a b", kSpace + " b", "a " + kSpace + "b"}));
  REQUIRE_MESSAGE(loaded.ok(), (loaded.ok() ? "" : loaded.error().message));
  const Tokenizer& t = *loaded.value();
  CHECK(t.kind() == "gemma4");
  CHECK(encode(t, "abcab") == Strings{"<s>", "abc", "ab"});
  CHECK(encode(t, "a b", {.add_bos = false}) == Strings{"a" + kSpace + "b"});
  CHECK(encode(t, "th", {.add_bos = false}) ==
        Strings{"t", "h"});  // a token, but no merge makes it
  // Merges of newlines may be missing; a run without a token is its parts.
  CHECK(encode(t, "\n\n\n", {.add_bos = false}) == Strings{"\n\n\n"});
  CHECK(encode(t, "a\n\n", {.add_bos = false}) == Strings{"a", "\n", "\n"});
  CHECK(encode(t, "\xE2\x82\xAC", {.add_bos = false}) == Strings{"<0xE2>", "<0x82>", "<0xAC>"});

  const auto bare = load_vocabulary(listed_file(v, {"ab"}));
  CHECK(bare.error().message ==
        "tokenizer.ggml.merges: merge 0 is \"ab\", want two tokens with a space between");
  const auto unknown = load_vocabulary(listed_file(v, {"b c", "z z"}));
  CHECK(unknown.error().message ==
        "tokenizer.ggml.merges: merge 1 is \"z z\", but \"zz\" is not a token");
}

TEST_CASE("an empty text is BOS alone, and no space is put before nothing") {
  const auto t = small();
  CHECK(encode(*t, "") == Strings{"<s>"});
  CHECK(encode(*t, "", {.add_bos = false}).empty());
}

TEST_CASE("text that the vocabulary lacks becomes bytes, valid UTF-8 or not") {
  const auto t = small();
  CHECK(encode(*t, "\xC3\xA9", {.add_bos = false}) == Strings{kSpace, "\xC3\xA9"});
  CHECK(encode(*t, "\xE2\x82\xAC", {.add_bos = false}) ==
        Strings{kSpace, "<0xE2>", "<0x82>", "<0xAC>"});
  // A broken character does not affect its neighbours.
  CHECK(encode(*t,
               "\xE2\x82"
               "ab\xFF",
               {.add_bos = false}) == Strings{kSpace, "<0xE2>", "<0x82>", "ab", "<0xFF>"});
  CHECK(encode(*t, std::string("\0", 1), {.add_bos = false}) == Strings{kSpace, "<0x00>"});
}

TEST_CASE("text that spells a control or byte token stays text unless special tokens are parsed") {
  const auto t = small();
  const auto plain = t->encode("<|end|></s><0x41>", {.add_bos = false, .parse_special = false});
  for (const int32_t id : plain) CHECK_FALSE(t->is_control(id));
  CHECK(decode(*t, plain) == "<|end|></s><0x41>");
  CHECK(encode(*t, "a<|end|>b</s>", {.add_bos = false, .parse_special = true}) ==
        Strings{kSpace + "a", "<|end|>", kSpace, "b", "</s>"});
}

TEST_CASE("a vocabulary that could merge its way to a control token does not") {
  TestVocab v = small_vocab();
  v.add("<", -100, 1);
  v.add(">", -100, 1);
  v.add("<s", -100, 1);
  const auto loaded = load_vocabulary(vocab_file(v));
  CHECK(encode(*loaded.value(), "<s>", {.add_bos = false}) == Strings{kSpace, "<s", ">"});
}

TEST_CASE("user-defined tokens are found in any text, the longest first") {
  TestVocab v = small_vocab();
  v.add("<tool>x", 0, 4);
  const auto loaded = load_vocabulary(vocab_file(v));
  CHECK(encode(*loaded.value(), "a<tool>b<tool>x", {.add_bos = false}) ==
        Strings{kSpace + "a", "<tool>", kSpace, "b", "<tool>x"});
}

TEST_CASE("without byte tokens the unknown token is used; without either it is an error") {
  TestVocab v;
  v.add("<unk>", 0, 2);
  v.add("<s>", 0, 3);
  v.add("</s>", 0, 3);
  v.add(kSpace, -1, 1);
  v.add("a", -1, 1);
  const auto loaded = load_vocabulary(vocab_file(v));
  REQUIRE(loaded.ok());
  CHECK(encode(*loaded.value(), "a\xE2\x82\xAC", {.add_bos = false}) ==
        Strings{kSpace, "a", "<unk>"});
  CHECK(loaded.value()->piece(0) == "\xEF\xBF\xBD");
  v.types[0] = 1;
  const auto refused = load_vocabulary(vocab_file(v));
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == ErrorCode::kCorrupt);
  CHECK(refused.error().message.find("<0x00>") != std::string::npos);
}

TEST_CASE("facts of the vocabulary") {
  const auto t = small();
  CHECK(t->kind() == "llama");
  CHECK(t->vocab_size() == static_cast<int32_t>(small_vocab().tokens.size()));
  CHECK(t->bos() == 1);
  CHECK(t->eos() == 2);
  CHECK(t->is_end_of_generation(2));
  CHECK(t->is_end_of_generation(t->vocab_size() - 1));  // <|end|>
  CHECK_FALSE(t->is_end_of_generation(1));
  CHECK(t->is_control(1));
  CHECK_FALSE(t->is_control(0));
  CHECK(t->piece(1).empty());
  CHECK(t->piece(3 + 'A') == "A");
  CHECK(t->max_piece_bytes() == 6);  // "<tool>"
}

TEST_CASE("duplicates and empty entries are tolerated, the last duplicate counts") {
  TestVocab v = small_vocab();
  v.add("", 0, 1);
  const int32_t last = v.add("ab", -1, 1);
  const auto loaded = load_vocabulary(vocab_file(v));
  REQUIRE(loaded.ok());
  CHECK(loaded.value()->encode("ab", {.add_bos = false}).back() == last);
}

TEST_CASE("encode and decode give back the text") {
  const auto t = small();
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    std::string text;
    const int length = static_cast<int>(random() % 40);
    for (int i = 0; i < length; ++i) {
      constexpr const char* kParts[] = {
          "a",   "b",      "c", " ", "  ", "the", "\n", "\xC3\xA9", "\xF0\x9F\x98\x80",
          "<s>", "<tool>", "Z"};
      text += kParts[random() % std::size(kParts)];
    }
    // A space is put after each user-defined token, so only texts without one decode to themselves.
    if (text.find("<tool>") != std::string::npos) continue;
    CHECK(decode(*t, t->encode(text, {})) == text);
  }
}

// The definition: repeatedly the best of all pairs, the leftmost of equals.
Strings merge_by_the_rule(const TestVocab& v, Strings pieces) {
  const auto score_of = [&v](const std::string& text) {
    std::optional<float> score;
    for (size_t i = 0; i < v.tokens.size(); ++i) {
      if (v.tokens[i] == text && v.types[i] == 1) score = v.scores[i];
    }
    return score;
  };
  while (true) {
    std::optional<float> best;
    size_t at = 0;
    for (size_t i = 0; i + 1 < pieces.size(); ++i) {
      const auto score = score_of(pieces[i] + pieces[i + 1]);
      if (score && (!best || *score > *best)) {
        best = score;
        at = i;
      }
    }
    if (!best) return pieces;
    pieces[at] += pieces[at + 1];
    pieces.erase(pieces.begin() + static_cast<ptrdiff_t>(at) + 1);
  }
}

TEST_CASE("random vocabularies and texts merge by the rule") {
  std::mt19937 random(12);
  const Strings letters = {"a", "b", "c", "\xC3\xA9", kSpace};
  const auto some = [&](size_t most) {
    Strings out;
    for (size_t n = 1 + random() % most; n > 0; --n) out.push_back(letters[random() % 5]);
    return out;
  };
  const auto joined = [](const Strings& parts) {
    std::string out;
    for (const std::string& part : parts) out += part;
    return out;
  };
  for (int round = 0; round < 200; ++round) {
    TestVocab v;
    v.add("<unk>", 0, 2);
    for (const std::string& letter : letters) v.add(letter, -50, 1);
    for (int i = 0; i < 25; ++i) {
      const std::string token = joined(some(5));
      if (std::find(v.tokens.begin(), v.tokens.end(), token) != v.tokens.end()) continue;
      v.add(token, -static_cast<float>(random() % 8), 1);  // few scores: many ties
    }
    GgufWriter w;
    w.set_string("tokenizer.ggml.model", "llama");
    w.set_strings("tokenizer.ggml.tokens", v.tokens);
    w.set_f32s("tokenizer.ggml.scores", v.scores);
    w.set_i32s("tokenizer.ggml.token_type", v.types);
    w.set_bool("tokenizer.ggml.add_space_prefix", false);
    const auto loaded = load_vocabulary(w);
    REQUIRE(loaded.ok());
    const Strings text = some(60);
    REQUIRE(encode(*loaded.value(), joined(text)) == merge_by_the_rule(v, text));
  }
}

TEST_CASE("a megabyte of one character takes no longer than a megabyte of text") {
  // Quadratic merging would take hours here, not seconds: this test's time limit checks it.
  const auto t = small();
  const std::string spaces(1 << 20, ' ');
  const auto ids = t->encode(spaces, {.add_bos = false});
  CHECK(ids.size() == (1 << 18) + 1);
  CHECK(t->encode(std::string(1 << 20, 'a'), {.add_bos = false}).size() == 1 << 20);
  CHECK(t->encode(std::string(1 << 20, '\xFF'), {.add_bos = false}).size() == (1 << 20) + 1);
  CHECK(t->encode(std::string(1 << 20, '<'), {.add_bos = false}).size() == (1 << 20) + 1);
}

TEST_CASE("metadata that contradicts itself is an error that names the key") {
  const TestVocab good = small_vocab();
  const auto with = [](const TestVocab& v, auto change) {
    TestVocab changed = v;
    change(changed);
    return vocab_file(changed);
  };
  check_refused(with(good, [](TestVocab& v) { v.scores.pop_back(); }), ErrorCode::kCorrupt,
                "tokenizer.ggml.scores: 298 scores, want one for each of 299 tokens");
  check_refused(with(good, [](TestVocab& v) { v.types.push_back(1); }), ErrorCode::kCorrupt,
                "tokenizer.ggml.token_type");
  check_refused(with(good, [](TestVocab& v) { v.types[5] = 7; }), ErrorCode::kCorrupt,
                "token 5 has type 7");
  check_refused(with(good, [](TestVocab& v) { v.types[5] = -1; }), ErrorCode::kCorrupt,
                "token 5 has type -1");
  check_refused(with(good, [](TestVocab& v) { v.tokens[5] = "<0xG0>"; }), ErrorCode::kCorrupt,
                "token 5 is a byte and reads \"<0xG0>\"");
  check_refused(with(good, [](TestVocab& v) { v.scores[9] = NAN; }), ErrorCode::kCorrupt,
                "tokenizer.ggml.scores: element 9");
  check_refused(with(good, [](TestVocab& v) { v.tokens[9] = std::string(5000, 'x'); }),
                ErrorCode::kCorrupt, "token 9 has 5000 bytes");
  check_refused(with(good,
                     [](TestVocab& v) {
                       v.tokens.clear();
                       v.scores.clear();
                       v.types.clear();
                     }),
                ErrorCode::kCorrupt, "tokenizer.ggml.tokens: 0 tokens");

  GgufWriter other_kind;
  other_kind.set_string("tokenizer.ggml.model", "nonesuch");
  check_refused(other_kind, ErrorCode::kUnsupported, "\"nonesuch\"");
  check_refused(GgufWriter(), ErrorCode::kCorrupt, "tokenizer.ggml.model: missing");

  GgufWriter no_scores;
  no_scores.set_string("tokenizer.ggml.model", "llama");
  no_scores.set_strings("tokenizer.ggml.tokens", good.tokens);
  check_refused(no_scores, ErrorCode::kCorrupt, "tokenizer.ggml.scores: missing");

  GgufWriter far_bos;
  far_bos.set_string("tokenizer.ggml.model", "llama");
  far_bos.set_strings("tokenizer.ggml.tokens", good.tokens);
  far_bos.set_f32s("tokenizer.ggml.scores", good.scores);
  far_bos.set_u32("tokenizer.ggml.bos_token_id", static_cast<uint32_t>(good.tokens.size()));
  check_refused(far_bos, ErrorCode::kCorrupt, "tokenizer.ggml.bos_token_id: token 299");

  GgufWriter no_bos;
  no_bos.set_string("tokenizer.ggml.model", "llama");
  no_bos.set_strings("tokenizer.ggml.tokens", good.tokens);
  no_bos.set_f32s("tokenizer.ggml.scores", good.scores);
  no_bos.set_bool("tokenizer.ggml.add_bos_token", true);
  check_refused(no_bos, ErrorCode::kCorrupt, "tokenizer.ggml.add_bos_token");
}

TEST_CASE("without token types, bytes are recognized by their text and special ids are normal") {
  TestVocab v = small_vocab();
  v.types.clear();
  GgufWriter w = vocab_file(v);
  w.set_bool("tokenizer.ggml.add_space_prefix", false);
  const auto loaded = load_vocabulary(w);
  REQUIRE(loaded.ok());
  CHECK(encode(*loaded.value(), "Ab") == Strings{"<s>", "<0x41>", "b"});
  CHECK(loaded.value()->is_control(2));
  CHECK_FALSE(loaded.value()->adds_space_prefix());
}

TEST_CASE("every published case of every real tokenizer") {
  for (const char* name : {"llama-spm", "gpt-2", "deepseek-llm", "starcoder"}) {
    INFO(name);
    const auto model = tests::test_data(std::string("tokenizers/") + name + ".gguf");
    if (model.empty()) HEARTH_SKIP("no HEARTH_TEST_DATA/tokenizers");
    const auto file = GgufFile::open(model);
    REQUIRE(file.ok());
    const auto t = load_tokenizer(file.value());
    REQUIRE(t.ok());
    int cases = 0;
    for (const PublishedCase& published : published_cases(model)) {
      INFO("case " << cases << ": " << published.input);
      const std::vector<int32_t> met = t.value()->encode(published.input, {.add_bos = false});
      CHECK(met == published.ids);
      CHECK(decode(*t.value(), met) == published.input);
      ++cases;
    }
    CHECK(cases > 40);
  }
}

}  // namespace
}  // namespace hearth::models
