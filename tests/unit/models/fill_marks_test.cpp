#include "models/tokenizer/text/fill_marks.h"

#include <doctest/doctest.h>

#include <array>
#include <string>
#include <vector>

#include "models/gguf/gguf_file.h"
#include "tests/skip.h"
#include "tests/unit/models/load_vocabulary.h"
#include "tests/unit/models/test_vocab.h"

namespace hearth::models {
namespace {

Result<std::optional<FillMarks>> marks_of(const GgufWriter& writer) {
  const std::vector<std::byte> bytes = writer.bytes();
  const GgufFile file = GgufFile::parse(bytes, "vocab").value();
  const auto tokenizer = load_tokenizer(file);
  REQUIRE(tokenizer.ok());
  return load_fill_marks(file, *tokenizer.value());
}

TEST_CASE("the marks for filling in are found by the names that models give them") {
  using Names = std::array<std::string, 3>;
  for (const Names& names : {Names{"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},
                             Names{"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},
                             Names{"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"},
                             Names{"▁<PRE>", "▁<SUF>", "▁<MID>"}}) {
    TestVocab v = small_vocab();
    const int32_t middle = v.add(names[2], 0, 3);
    const int32_t prefix = v.add(names[0], 0, 3);
    const int32_t pad = v.add("<|fim_pad|>", 0, 3);
    const int32_t suffix = v.add(names[1], 0, 3);
    const auto found = marks_of(vocab_file(v));
    REQUIRE(found.ok());
    REQUIRE(found->has_value());
    const FillMarks& marks = **found;
    CHECK(marks.ends == std::vector<int32_t>{pad, prefix, suffix, middle});
    const std::vector<int32_t> before = {5, 6}, after = {7};
    CHECK(marks.prompt(before, after) == std::vector<int32_t>{prefix, 5, 6, suffix, 7, middle});
  }
}

TEST_CASE("without a mark of the middle the prefix comes last") {
  TestVocab v = small_vocab();
  const int32_t suffix = v.add("[SUFFIX]", 0, 3);
  const int32_t prefix = v.add("[PREFIX]", 0, 3);
  const auto found = marks_of(vocab_file(v));
  REQUIRE(found.ok());
  REQUIRE(found->has_value());
  const std::vector<int32_t> before = {5, 6}, after = {7};
  CHECK((*found)->prompt(before, after) == std::vector<int32_t>{suffix, 7, prefix, 5, 6});
}

TEST_CASE("metadata comes before names, and an id outside the vocabulary is corrupt") {
  TestVocab v = small_vocab();
  v.add("<fim_prefix>", 0, 3);
  v.add("<fim_suffix>", 0, 3);
  const auto file = [&v](uint32_t suffix) {
    GgufWriter made = vocab_file(v);
    made.set_u32("tokenizer.ggml.fim_pre_token_id", 10);
    made.set_u32("tokenizer.ggml.fim_suf_token_id", suffix);
    made.set_u32("tokenizer.ggml.fim_mid_token_id", 12);
    return made;
  };
  const auto found = marks_of(file(11));
  REQUIRE(found.ok());
  REQUIRE(found->has_value());
  CHECK((*found)->prefix == 10);
  CHECK((*found)->suffix == 11);
  CHECK((*found)->middle == 12);
  const auto bad = marks_of(file(1 << 30));
  REQUIRE_FALSE(bad.ok());
  CHECK(bad.error().code == ErrorCode::kCorrupt);
  CHECK(bad.error().message.find("fim_suf_token_id") != std::string::npos);
}

TEST_CASE("a vocabulary without them has none; a published one has its own") {
  CHECK_FALSE(marks_of(vocab_file(small_vocab())).value().has_value());
  const std::filesystem::path path = tests::test_data("tokenizers/starcoder.gguf");
  if (path.empty()) HEARTH_SKIP("tokenizers/starcoder.gguf is not in HEARTH_TEST_DATA");
  const auto file = GgufFile::open(path);
  REQUIRE(file.ok());
  const auto tokenizer = load_tokenizer(file.value());
  REQUIRE(tokenizer.ok());
  const auto found = load_fill_marks(file.value(), *tokenizer.value());
  REQUIRE(found.ok());
  REQUIRE(found->has_value());
  CHECK(tokenizer.value()->entry((*found)->prefix) == "<fim_prefix>");
  CHECK(tokenizer.value()->entry((*found)->suffix) == "<fim_suffix>");
  CHECK(tokenizer.value()->entry((*found)->middle.value()) == "<fim_middle>");
}

}  // namespace
}  // namespace hearth::models
