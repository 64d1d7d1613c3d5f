#include "models/ranking/ranker.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "models/gguf/gguf_file.h"
#include "tests/unit/models/load_vocabulary.h"
#include "tests/unit/models/ranking_file.h"

namespace hearth::models {
namespace {

struct Loaded {
  explicit Loaded(const GgufWriter& writer)
      : bytes(writer.bytes()),
        file(GgufFile::parse(bytes, "ranker").value()),
        tokenizer(load_tokenizer(file).value()),
        ranker(Ranker::load(file, *tokenizer)) {}

  std::vector<int32_t> encode(std::string_view text, bool add_bos = false) const {
    return tokenizer->encode(text, {.add_bos = add_bos});
  }

  std::vector<std::byte> bytes;
  GgufFile file;
  std::unique_ptr<Tokenizer> tokenizer;
  Result<std::shared_ptr<const Ranker>> ranker;
};

std::vector<int32_t> joined(std::initializer_list<std::vector<int32_t>> parts) {
  std::vector<int32_t> out;
  for (const auto& part : parts) out.insert(out.end(), part.begin(), part.end());
  return out;
}

TEST_CASE("a pair: both texts end with the token that ends a text, twice between them") {
  const Loaded made(ranking_file());
  REQUIRE_MESSAGE(made.ranker.ok(), made.ranker.error().message);
  REQUIRE(*made.ranker != nullptr);
  const Ranker& ranker = **made.ranker;
  CHECK(ranker.row() == Pooling::kCls);
  CHECK(ranker.tokens(*made.tokenizer, "ab", "the</s>", nullptr) ==
        joined({made.encode("ab", true), {2, 2}, made.encode("the</s>"), {2}}));
  const std::vector<float> row = {3, 4};
  CHECK(ranker.classifier().score(row, false) == 2.5f);
  CHECK(ranker.classifier().score(row, true) == doctest::Approx(1 / (1 + std::exp(-2.5))));
}

TEST_CASE("a pair in the file's own form: words of the texts stay text") {
  GgufWriter file = ranking_file();
  file.set_string("tokenizer.chat_template.rerank", "<|end|>ab{document}<|end|>{query}the");
  const Loaded made(file);
  REQUIRE_MESSAGE(made.ranker.ok(), made.ranker.error().message);
  const Ranker& ranker = **made.ranker;
  CHECK(ranker.row() == Pooling::kLast);
  const std::vector<int32_t> ids = ranker.tokens(*made.tokenizer, "bc", "he<|end|>", nullptr);
  const auto end = made.tokenizer->encode("<|end|>", {.add_bos = false, .parse_special = true});
  CHECK(std::ranges::count(ids, end.back()) == 2);
  for (const char* bad :
       {"{query}", "{document} {document}", "no place", "{query}{query}{document}"}) {
    GgufWriter other = ranking_file();
    other.set_string("tokenizer.chat_template.rerank", bad);
    const Loaded refused(other);
    REQUIRE_FALSE(refused.ranker.ok());
    CHECK(refused.ranker.error().code == ErrorCode::kUnsupported);
  }
}

TEST_CASE("of two labels the score is that of yes less the other's") {
  GgufWriter file = vocab_file(small_vocab());
  file.set_u32("llama.pooling_type", 4);
  file.set_u32("llama.embedding_length", 2);
  file.set_string("tokenizer.chat_template.rerank", "{query}{document}");
  add(&file, "cls.output.weight", {2, 2}, {1, 0, 0, 1});
  {
    const Loaded unnamed(file);
    REQUIRE_FALSE(unnamed.ranker.ok());
    CHECK(unnamed.ranker.error().message.find("output_labels") != std::string::npos);
  }
  file.set_strings("llama.classifier.output_labels", std::vector<std::string>{"no", "yes"});
  const Loaded made(file);
  REQUIRE_MESSAGE(made.ranker.ok(), made.ranker.error().message);
  CHECK((*made.ranker)->classifier().score(std::vector<float>{1, 4}, false) == 3.0f);
}

TEST_CASE("a file that does not rank has no ranker; one that cannot is refused by name") {
  const Loaded none(vocab_file(small_vocab()));
  REQUIRE(none.ranker.ok());
  CHECK(*none.ranker == nullptr);
  const Loaded without_end(ranking_file(false));
  REQUIRE_FALSE(without_end.ranker.ok());
  CHECK(without_end.ranker.error().code == ErrorCode::kUnsupported);
  GgufWriter typed = ranking_file();
  add(&typed, "token_types.weight", {2, 2}, {1, 2, 3, 4});
  const Loaded types(typed);
  REQUIRE_FALSE(types.ranker.ok());
  CHECK(types.ranker.error().message.find("token_types.weight") != std::string::npos);
}

}  // namespace
}  // namespace hearth::models
