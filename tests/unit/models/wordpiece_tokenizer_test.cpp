#include "models/tokenizer/kinds/wordpiece_tokenizer.h"

#include <doctest/doctest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "models/gguf/gguf_file.h"
#include "models/tokenizer/text/text_end.h"
#include "tests/paths.h"
#include "tests/unit/models/load_vocabulary.h"
#include "tests/unit/models/test_vocab.h"

namespace hearth::models {
namespace {

using Strings = std::vector<std::string>;

TestVocab words() {
  TestVocab v;
  v.add("[PAD]", 0, 3);
  v.add("[UNK]", 0, 2);
  v.add("[CLS]", 0, 3);
  v.add("[SEP]", 0, 3);
  v.add("[MASK]", 0, 3);
  const std::string mark = "\xE2\x96\x81";
  for (const char* word : {"un", "the", "a", "resume", "\xC3\xA9t\xC3\xA9", "!", "+",
                           "\xE4\xB8\xAD", "\xE6\x96\x87", "A", "x"}) {
    v.add(mark + word, 0, 1);
  }
  for (const char* rest : {"aff", "able", "a", "ff", "x"}) v.add(rest, 0, 1);
  return v;
}

GgufWriter bert_file(const TestVocab& v) {
  GgufWriter w = vocab_file("bert", v);
  w.set_u32("tokenizer.ggml.bos_token_id", 2);
  return w;
}

Strings entries(const GgufWriter& writer, std::string_view text, const EncodeOptions& options) {
  const auto t = load_vocabulary(writer);
  REQUIRE(t.ok());
  Strings out;
  for (const int32_t id : (*t)->encode(text, options)) {
    std::string entry((*t)->entry(id));
    if (entry.starts_with("\xE2\x96\x81")) entry.replace(0, 3, "_");
    out.push_back(entry);
  }
  return out;
}
Strings entries(std::string_view text) {
  return entries(bert_file(words()), text, {.add_bos = false});
}

TEST_CASE("a word is its longest leading token, then the longest continuations") {
  CHECK(entries("unaffable") == Strings{"_un", "aff", "able"});
  CHECK(entries("unaff") == Strings{"_un", "aff"});
  CHECK(entries("unfable") == Strings{"[UNK]"});  // no way back once "f" finds nothing
  CHECK(entries("the theb a") == Strings{"_the", "[UNK]", "_a"});
  CHECK(entries("").empty());
  CHECK(entries(" \t\r\n").empty());
}

TEST_CASE("case, accents, controls, punctuation and Han characters") {
  CHECK(entries("THE R\xC3\xA9sum\xC3\xA9") == Strings{"_the", "_resume"});
  CHECK(entries("re\xCC\x81sume\xCC\x81") == Strings{"_resume"});
  CHECK(entries("t\x01h\xC2\xAD"
                "e\xFF") == Strings{"_the"});
  CHECK(entries("the\x0B"
                "a") == Strings{"_the", "a"});  // dropped, where a tab would cut
  CHECK(entries("the\xC2\xA0"
                "a") == Strings{"_the", "_a"});
  CHECK(entries("the!+a") == Strings{"_the", "_!", "_+", "_a"});
  CHECK(entries("a\xE4\xB8\xAD\xE6\x96\x87"
                "a") == Strings{"_a", "_\xE4\xB8\xAD", "_\xE6\x96\x87", "_a"});

  GgufWriter cased = bert_file(words());
  cased.set_bool("tokenizer.ggml.normalizer.lowercase", false);
  CHECK(entries(cased, "A \xC3\xA9t\xC3\xA9 THE", {.add_bos = false}) ==
        Strings{"_A", "_\xC3\xA9t\xC3\xA9", "[UNK]"});
  GgufWriter accents_kept = bert_file(words());
  accents_kept.set_bool("tokenizer.ggml.normalizer.strip_accents", false);
  CHECK(entries(accents_kept, "\xC3\x89T\xC3\x89", {.add_bos = false}) ==
        Strings{"_\xC3\xA9t\xC3\xA9"});
}

TEST_CASE("special tokens, and words that are too long") {
  CHECK(entries(bert_file(words()), "a", {}) == Strings{"[CLS]", "_a"});
  CHECK(entries(bert_file(words()), "a [MASK] a", {.add_bos = false, .parse_special = true}) ==
        Strings{"_a", "[MASK]", "_a"});
  for (const std::string& entry : entries("[MASK]")) CHECK(entry != "[MASK]");
  CHECK(entries(std::string(100, 'x')).size() == 100);
  CHECK(entries(std::string(101, 'x')) == Strings{"[UNK]"});
  CHECK(entries(std::string(1 << 20, 'x')) == Strings{"[UNK]"});
}

TEST_CASE("decoded words have spaces between them") {
  const auto t = load_vocabulary(bert_file(words()));
  REQUIRE(t.ok());
  CHECK((*t)->kind() == "bert");
  StreamingDetokenizer detokenizer(**t, true);
  std::string text;
  for (const int32_t id : (*t)->encode("The unaffable", {})) text += detokenizer.push(id);
  CHECK(text + detokenizer.finish() == "the unaffable");
}

TEST_CASE("an unknown token marked as control still works; one that is BOS does not") {
  TestVocab v = words();
  v.types[1] = 3;
  GgufWriter w = bert_file(v);
  w.set_u32("tokenizer.ggml.unknown_token_id", 1);
  CHECK(entries(w, "qqq", {.add_bos = false}) == Strings{"[UNK]"});
  GgufWriter same = bert_file(v);
  same.set_u32("tokenizer.ggml.unknown_token_id", 2);
  CHECK_FALSE(load_vocabulary(same).ok());
}

TEST_CASE("a vocabulary without an unknown token is refused") {
  TestVocab v = words();
  v.types[1] = 1;
  const auto refused = load_vocabulary(bert_file(v));
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == ErrorCode::kCorrupt);
  CHECK(refused.error().message.find("tokenizer.ggml.unknown_token_id") != std::string::npos);
}

TEST_CASE("a text that is embedded ends with the separator, which encode() leaves out") {
  const auto end = [](const GgufWriter& writer) {
    const std::vector<std::byte> bytes = writer.bytes();
    const auto file = GgufFile::parse(bytes, "vocab");
    REQUIRE(file.ok());
    const auto tokenizer = load_tokenizer(file.value());
    REQUIRE(tokenizer.ok());
    return load_text_end(file.value(), **tokenizer);
  };
  GgufWriter w = bert_file(words());
  w.set_u32("tokenizer.ggml.eos_token_id", 4);
  CHECK(end(w).value() == 4);
  w.set_u32("tokenizer.ggml.seperator_token_id", 3);
  CHECK(end(w).value() == 3);
  CHECK(entries(w, "the", {.add_bos = true}) == Strings{"[CLS]", "_the"});
  GgufWriter far = bert_file(words());
  far.set_u32("tokenizer.ggml.seperator_token_id", 1000);
  CHECK(end(far).error().code == ErrorCode::kCorrupt);
  GgufWriter none = bert_file(words());
  none.set_bool("tokenizer.ggml.add_sep_token", false);
  CHECK_FALSE(end(none).value());
  none.set_u32("tokenizer.ggml.eos_token_id", 4);
  CHECK_FALSE(end(none).value());
  none.set_bool("tokenizer.ggml.add_eos_token", true);
  CHECK(end(none).value() == 4);
}

TEST_CASE("texts in many scripts have the published tokenizer's ids, lowercased and not") {
  std::ifstream in(hearth::tests::source_path("tests/golden/encoders/wordpiece.json"));
  REQUIRE(in.good());
  const auto recorded = nlohmann::json::parse(in);
  TestVocab v;
  for (const auto& each : recorded.at("tokens")) {
    const auto token = each.get<std::string>();
    const bool special = token.starts_with("[") && token.size() > 3;
    if (special) {
      v.add(token, 0, token == "[UNK]" ? 2 : 3);
    } else if (token.starts_with("##")) {
      v.add(token.substr(2), 0, 1);
    } else {
      v.add("\xE2\x96\x81" + token, 0, 1);
    }
  }
  int checked = 0;
  for (const bool lowercase : {true, false}) {
    GgufWriter w = bert_file(v);
    w.set_bool("tokenizer.ggml.normalizer.lowercase", lowercase);
    const auto t = load_vocabulary(w);
    REQUIRE(t.ok());
    for (const auto& each : recorded.at("cases")) {
      if (each.at("lowercase").get<bool>() != lowercase) continue;
      const auto text = each.at("text").get<std::string>();
      CHECK_MESSAGE(
          (*t)->encode(text, {.add_bos = false}) == each.at("ids").get<std::vector<int32_t>>(),
          text);
      ++checked;
    }
  }
  CHECK(checked == 48);
}

}  // namespace
}  // namespace hearth::models
