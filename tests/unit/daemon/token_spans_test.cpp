#include "daemon/worker/text/token_spans.h"

#include <doctest/doctest.h>

#include <string>

#include "tests/unit/models/bpe_vocab.h"
#include "tests/unit/models/load_vocabulary.h"
#include "tests/unit/models/test_vocab.h"

namespace hearth::worker {
namespace {

/// Every byte belongs to exactly one token, in order.
void check_covered(const models::Tokenizer& tokenizer, const std::string& text, bool special) {
  const auto ids = tokenizer.encode(text, {.add_bos = true, .parse_special = special});
  const auto spans = token_spans(tokenizer, ids, text);
  REQUIRE(spans.size() == ids.size());
  size_t at = 0;
  for (const auto& span : spans) {
    REQUIRE(span.has_value());
    CHECK(span->begin == at);
    at = span->end;
  }
  CHECK(at == text.size());
}

TEST_CASE("the spans of a text's tokens cover it, byte for byte") {
  const auto bpe =
      models::load_vocabulary(models::vocab_file(models::small_bpe_vocab(), "llama-bpe")).value();
  const auto spm = models::load_vocabulary(models::vocab_file(models::small_vocab())).value();
  for (const bool special : {false, true}) {
    for (const std::string text :
         {"", "the abc", "  the  the ", "t\xC3\xA9 \xE6\x97\xA5 the", "\n\nthe<|end|>abc"}) {
      CAPTURE(text);
      check_covered(*bpe, text, special);
      check_covered(*spm, text, special);
    }
  }
}

TEST_CASE("a token whose text is not found ends the spans") {
  const auto spm = models::load_vocabulary(models::vocab_file(models::small_vocab())).value();
  auto ids = spm->encode("the abc", {});
  const auto spans = token_spans(*spm, ids, "the xyz");
  REQUIRE(spans.size() == ids.size());
  CHECK(spans.front().has_value());
  CHECK_FALSE(spans.back().has_value());
}

}  // namespace
}  // namespace hearth::worker
