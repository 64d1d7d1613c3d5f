#include "models/tokenizer/kinds/bpe_tokenizer.h"

#include <doctest/doctest.h>

#include <random>

#include "models/gguf/gguf_file.h"
#include "models/tokenizer/kinds/bpe_merges.h"
#include "tests/unit/models/bpe_vocab.h"
#include "tests/unit/models/load_vocabulary.h"

namespace hearth::models {
namespace {

using Strings = std::vector<std::string>;

std::unique_ptr<Tokenizer> small(const std::string& pre = "gpt-2") {
  auto loaded = load_vocabulary(vocab_file(small_bpe_vocab(), pre));
  REQUIRE(loaded.ok());
  return std::move(loaded).value();
}

Strings pieces(const Tokenizer& t, std::string_view text, bool parse_special = false) {
  Strings out;
  for (const int32_t id : t.encode(text, {.parse_special = parse_special}))
    out.emplace_back(t.piece(id));
  return out;
}

std::string decode(const Tokenizer& t, const std::vector<int32_t>& ids) {
  StreamingDetokenizer detokenizer(t, true);
  std::string text;
  for (const int32_t id : ids) text += detokenizer.push(id);
  return text + detokenizer.finish();
}

TEST_CASE("pairs merge by rank, the leftmost first on ties, inside a piece") {
  const auto t = small();
  CHECK(pieces(*t, "the the") == Strings{"the", " the"});
  CHECK(pieces(*t, "abc") == Strings{"abc"});
  CHECK(pieces(*t, "bcabc") == Strings{"bc", "abc"});
  CHECK(pieces(*t, "abbc") == Strings{"ab", "bc"});
  CHECK(pieces(*t, "    x") == Strings{"  ", " ", " ", "x"});  // the last space goes with x
  CHECK(pieces(*t, "    ") == Strings{"    "});
  CHECK(pieces(*t, "") == Strings{});
}

TEST_CASE("every byte has a token, and decodes back") {
  const auto t = small();
  std::string all;
  for (int b = 0; b < 256; ++b) all.push_back(static_cast<char>(b));
  std::string back;
  for (const int32_t id : t->encode(all, {})) back += t->piece(id);
  CHECK(back == all);
  CHECK(t->entry(0) == "\xC4\x80");     // U+0100
  CHECK(t->entry(' ') == "\xC4\xA0");   // U+0120
  CHECK(t->entry(0xAD) == "\xC5\x83");  // U+0143, the last
  CHECK(t->entry(0xFF) == "\xC3\xBF");
}

TEST_CASE("a piece that is a token need not be what merging makes of it") {
  TestBpeVocab v = small_bpe_vocab();
  v.add("bcx", 1);  // no merge leads there
  CHECK(pieces(*load_vocabulary(vocab_file(v, "gpt-2")).value(), "bcx") == Strings{"bc", "x"});
  CHECK(pieces(*load_vocabulary(vocab_file(v, "llama3")).value(), "bcx") == Strings{"bcx"});
  CHECK(pieces(*load_vocabulary(vocab_file(v, "llama3")).value(), "bcxa") ==
        Strings{"bc", "x", "a"});
}

TEST_CASE("text that names special tokens") {
  const auto t = small();
  CHECK(pieces(*t, "a<|end|>") == Strings{"a", "<", "|", "e", "n", "d", "|", ">"});
  const auto ids = t->encode("a<|end|>b", {.parse_special = true});
  REQUIRE(ids.size() == 3);
  CHECK(t->entry(ids[1]) == "<|end|>");
  CHECK(t->is_control(ids[1]));
  CHECK(t->is_end_of_generation(ids[1]));
  CHECK(t->piece(ids[1]).empty());
  CHECK(pieces(*t, "a<tool>b") == Strings{"a", "<tool>", "b"});
}

TEST_CASE("merges never produce a control token") {
  TestBpeVocab v = small_bpe_vocab();
  v.merge("<", "s");
  v.merges.push_back("<s >");
  v.add("<s>", 3);
  const auto t = load_vocabulary(vocab_file(v, "default"));
  REQUIRE(t.ok());
  CHECK(pieces(*t.value(), "<s>") == Strings{"<", "s", ">"});  // punctuation stands apart
  const auto joined = load_vocabulary(vocab_file(v, "bloom"));
  CHECK(pieces(*joined.value(), "<s>") == Strings{"<s", ">"});
}

TEST_CASE("a token that ends a turn is a control token, whatever its type field") {
  for (const int32_t type : {1, 4}) {
    TestBpeVocab v = small_bpe_vocab();
    const int32_t end_of_turn = v.add("<|im_end|>", type);
    const auto t = load_vocabulary(vocab_file(v, "gpt-2"));
    REQUIRE(t.ok());
    CHECK((*t)->is_control(end_of_turn));
    CHECK((*t)->is_end_of_generation(end_of_turn));
    for (const int32_t id : (*t)->encode("<|im_end|>", {})) CHECK(id != end_of_turn);
    CHECK((*t)->encode("<|im_end|>", {.parse_special = true}) == std::vector<int32_t>{end_of_turn});
  }
}

TEST_CASE("a byte that the vocabulary lacks decodes as U+FFFD") {
  TestBpeVocab v = small_bpe_vocab();
  v.tokens[0xFE] = "gone";
  const auto t = load_vocabulary(vocab_file(v, "gpt-2"));
  REQUIRE(t.ok());
  CHECK(decode(*t.value(), t.value()->encode("a\xFEz", {})) == "a\xEF\xBF\xBDz");
  v.tokens[0xBF] = "gone too";
  const auto refused = load_vocabulary(vocab_file(v, "gpt-2"));
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().message.find("no token for byte 0xBF") != std::string::npos);
}

TEST_CASE("BOS and the leading space follow the metadata and the rule") {
  const auto starts = [](const GgufWriter& w, std::string_view text) {
    const auto t = load_vocabulary(w);
    REQUIRE(t.ok());
    Strings out;
    for (const int32_t id : t.value()->encode(text, {})) out.emplace_back(t.value()->entry(id));
    return out;
  };
  const TestBpeVocab v = small_bpe_vocab();
  const auto end = static_cast<uint32_t>(v.tokens.size() - 2);
  GgufWriter llama = vocab_file(v, "llama-bpe");
  CHECK(starts(llama, "a") == Strings{"a"});  // no BOS to add
  llama.set_u32("tokenizer.ggml.bos_token_id", end);
  CHECK(starts(llama, "a") == Strings{"<|end|>", "a"});
  CHECK(load_vocabulary(llama).value()->encode("a", {.add_bos = false}).size() == 1);
  llama.set_bool("tokenizer.ggml.add_bos_token", false);
  CHECK(starts(llama, "a") == Strings{"a"});

  GgufWriter gpt2 = vocab_file(v, "gpt-2");
  gpt2.set_u32("tokenizer.ggml.bos_token_id", end);
  CHECK(starts(gpt2, "a") == Strings{"a"});
  gpt2.set_bool("tokenizer.ggml.add_space_prefix", true);
  CHECK(starts(gpt2, "the") == Strings{in_alphabet(" the")});
  CHECK(starts(gpt2, " the") == Strings{in_alphabet(" the")});
  CHECK(starts(gpt2, "").empty());
  const auto t = load_vocabulary(gpt2);
  CHECK(t.value()->adds_space_prefix());
  CHECK(decode(*t.value(), t.value()->encode("the", {})) == "the");
}

TEST_CASE("rules that ask for composed text get it") {
  const std::string decomposed = "e\xCC\x81!", composed = "\xC3\xA9!";
  CHECK(decode(*small("qwen2"), small("qwen2")->encode(decomposed, {})) == composed);
  CHECK(decode(*small("gpt-2"), small("gpt-2")->encode(decomposed, {})) == decomposed);
}

TEST_CASE("encode and decode give back any text, with every rule that does not compose") {
  std::mt19937 random(11);
  for (const char* pre :
       {"default", "gpt-2", "starcoder", "falcon", "llama-bpe", "tekken", "gpt-4o", "kimi-k2",
        "deepseek-llm", "deepseek-coder", "deepseek-v3", "bloom"}) {
    const auto t = small(pre);
    for (int round = 0; round < 50; ++round) {
      std::string text;
      const int length = static_cast<int>(random() % 40);
      for (int i = 0; i < length; ++i) {
        constexpr const char* kParts[] = {
            "a",  "b",  "the",     " ",      "  ", "\n",           "12", "\xC3\xA9",
            "'s", "<|", "<|end|>", "<tool>", "\t", "\xE4\xB8\xAD", ".",  "\xF0\x9F\x98\x80"};
        text += kParts[random() % std::size(kParts)];
      }
      REQUIRE(decode(*t, t->encode(text, {})) == text);
      for (const int32_t id : t->encode(text, {})) REQUIRE_FALSE(t->is_control(id));
    }
  }
}

TEST_CASE("long and short merging agree with the reference merging") {
  // Pairs of few kinds and many ties, so that candidates become stale in every way.
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    struct Merge {
      int32_t left, right, merged;
    };
    std::vector<Merge> list;
    BpeMerges merges;
    merges.reserve(40);
    for (int32_t merged = 3; merged < 43; ++merged) {
      const auto pick = [&] {
        return static_cast<int32_t>(random() % static_cast<uint32_t>(merged));
      };
      list.push_back({pick(), pick(), merged});
      merges.add(list.back().left, list.back().right, merged, static_cast<uint32_t>(merged));
    }
    std::vector<int32_t> ids(round % 2 == 0 ? 30 : 300);
    for (int32_t& id : ids) id = static_cast<int32_t>(random() % 3);
    std::vector<int32_t> want = ids;
    for (bool changed = true; changed;) {
      changed = false;
      for (const Merge& m : list) {
        for (size_t i = 0; i + 1 < want.size() && !changed; ++i) {
          if (want[i] != m.left || want[i + 1] != m.right) continue;
          want[i] = m.merged;
          want.erase(want.begin() + static_cast<ptrdiff_t>(i) + 1);
          changed = true;
        }
        if (changed) break;
      }
    }
    merges.merge(&ids);
    REQUIRE(ids == want);
  }
}

TEST_CASE("megabytes of one character take no longer than megabytes of text") {
  // Quadratic work would take hours here, not seconds: this test's time limit checks it.
  for (const char* pre : {"gpt-2", "llama-bpe", "gpt-4o", "deepseek-llm", "deepseek-v3", "qwen2",
                          "default", "bloom"}) {
    INFO(pre);
    const auto t = small(pre);
    for (const char* part :
         {" ", "a", "\n", "1", "'", "<", "\xFF", "A", " \n", "\xE4\xB8\xAD", "\xCC\x81",
          "\xE4\xB8\xAD"
          "A",
          "\xE3\x80\x80"}) {
      std::string text;
      while (text.size() < (1 << 18)) text += part;
      text += "x";
      REQUIRE_FALSE(t->encode(text, {}).empty());
    }
  }
}

TEST_CASE("BPE: metadata that contradicts itself is an error that names the key") {
  const auto with = [](auto change) {
    TestBpeVocab changed = small_bpe_vocab();
    change(changed);
    return vocab_file(changed, "gpt-2");
  };
  check_refused(vocab_file(small_bpe_vocab(), "no-such-rule"), ErrorCode::kUnsupported,
                "tokenizer.ggml.pre: \"no-such-rule\", this build knows default, gpt-2");
  check_refused(with([](TestBpeVocab& v) { v.merges[3] = "ab"; }), ErrorCode::kCorrupt,
                "tokenizer.ggml.merges: merge 3 is \"ab\", want two tokens");
  check_refused(with([](TestBpeVocab& v) { v.merges[3] = "a "; }), ErrorCode::kCorrupt, "merge 3");
  check_refused(with([](TestBpeVocab& v) { v.merges[3] = ""; }), ErrorCode::kCorrupt, "merge 3");
  check_refused(with([](TestBpeVocab& v) { v.merges[3] = "nil b"; }), ErrorCode::kCorrupt,
                "merge 3 is \"nil b\", but \"nil\" is not a token");
  check_refused(with([](TestBpeVocab& v) { v.merges[3] = "a nil"; }), ErrorCode::kCorrupt,
                "\"nil\" is not a token");
  check_refused(with([](TestBpeVocab& v) { v.merges[3] = "b a"; }), ErrorCode::kCorrupt,
                "but \"ba\" is not a token");
  check_refused(with([](TestBpeVocab& v) { v.types.pop_back(); }), ErrorCode::kCorrupt,
                "tokenizer.ggml.token_type");

  const TestBpeVocab good = small_bpe_vocab();
  GgufWriter no_merges;
  no_merges.set_string("tokenizer.ggml.model", "gpt2");
  no_merges.set_strings("tokenizer.ggml.tokens", good.tokens);
  check_refused(no_merges, ErrorCode::kCorrupt, "tokenizer.ggml.merges: missing");
  no_merges.set_i32s("tokenizer.ggml.merges", std::vector<int32_t>{1, 2});
  check_refused(no_merges, ErrorCode::kCorrupt, "tokenizer.ggml.merges");

  GgufWriter no_tokens;
  no_tokens.set_string("tokenizer.ggml.model", "gpt2");
  check_refused(no_tokens, ErrorCode::kCorrupt, "tokenizer.ggml.tokens: missing");

  GgufWriter no_bos = vocab_file(good, "gpt-2");
  no_bos.set_bool("tokenizer.ggml.add_bos_token", true);
  check_refused(no_bos, ErrorCode::kCorrupt, "tokenizer.ggml.add_bos_token");

  GgufWriter odd_pre;
  odd_pre.set_string("tokenizer.ggml.model", "gpt2");
  odd_pre.set_strings("tokenizer.ggml.tokens", good.tokens);
  odd_pre.set_u32("tokenizer.ggml.pre", 7);
  check_refused(odd_pre, ErrorCode::kCorrupt, "tokenizer.ggml.pre");
}

TEST_CASE("a file without a rule's name has the default rule") {
  const auto t = load_vocabulary(vocab_file(small_bpe_vocab(), ""));
  REQUIRE(t.ok());
  CHECK(t.value()->kind() == "gpt2");
  CHECK(pieces(*t.value(), "a12b") == Strings{"a", "12", "b"});
  CHECK(t.value()->max_piece_bytes() == 6);  // "<tool>"
}

}  // namespace
}  // namespace hearth::models
