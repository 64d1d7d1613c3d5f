// The reasoning of one answer, token by token: where it begins and ends, and what must follow.

#include "engine/sampling/reasoning_progress.h"

#include <doctest/doctest.h>

#include "tests/listed_tokenizer.h"

namespace hearth::engine {
namespace {

const tests::ListedTokenizer kWords({"a", " ", "<t", ">", "</", "t>", "</t>b", "<", "", "</t>"});
constexpr int32_t kControl = 8;  // a control token, whose text is a mark

ReasoningBound bound_of(int32_t max_tokens, bool open) {
  return {.begin = "<t>",
          .end = "</t>",
          .open = open,
          .max_tokens = max_tokens,
          .closing = {4, 5},
          .marks = {{kControl, "</t>"}},
          .tokenizer = &kWords};
}

/// What must follow after each of the tokens; -1: any.
std::vector<int32_t> forced_after(const ReasoningBound& bound, const std::vector<int32_t>& tokens,
                                  size_t end_at = SIZE_MAX) {
  ReasoningProgress progress;
  std::vector<int32_t> out;
  for (size_t i = 0; i <= tokens.size(); ++i) {
    const auto output = std::span(tokens).first(i);
    out.push_back(progress.forced(bound, output, i >= end_at).value_or(-1));
    // Asking twice changes nothing.
    CHECK(progress.forced(bound, output, i >= end_at).value_or(-1) == out.back());
  }
  return out;
}
using Ids = std::vector<int32_t>;

TEST_CASE("after as many tokens as its bound, reasoning is closed") {
  CHECK(forced_after(bound_of(2, true), {0, 0, 4, 5, 0, 0}) == Ids{-1, -1, 4, 5, -1, -1, -1});
  CHECK(forced_after(bound_of(2, false), {2, 3, 0, 0, 4, 5, 0}) ==
        Ids{-1, -1, -1, -1, 4, 5, -1, -1});
  CHECK(forced_after(bound_of(0, true), {4, 5}) == Ids{4, 5, -1});
}

TEST_CASE("reasoning that ends by itself is left alone, however its end is divided") {
  for (const Ids& end : {Ids{4, 5}, Ids{6}, Ids{kControl}, Ids{7, 4, 5}, Ids{4, 4, 5}}) {
    Ids tokens = {0};
    tokens.insert(tokens.end(), end.begin(), end.end());
    tokens.insert(tokens.end(), 5, 0);
    CHECK(forced_after(bound_of(5, true), tokens) == Ids(tokens.size() + 1, -1));
  }
  // The last token that is allowed begins the mark: it is closed all the same.
  CHECK(forced_after(bound_of(2, true), {0, 4, 4, 5, 0}) == Ids{-1, -1, 4, 5, -1, -1});
}

TEST_CASE("an answer that does not begin with the mark has no reasoning") {
  CHECK(forced_after(bound_of(1, false), {0, 2, 3, 0, 0}) == Ids(6, -1));
  CHECK(forced_after(bound_of(1, false), {2, 0, 3, 0, 0}) == Ids(6, -1));
  CHECK(forced_after(bound_of(1, false), {1, 1, 2, 3, 0}) == Ids{-1, -1, -1, -1, -1, 4});
}

TEST_CASE("reasoning is ended from outside, at once or as soon as it begins") {
  CHECK(forced_after(bound_of(99, true), {0, 0, 4, 5, 0}, 2) == Ids{-1, -1, 4, 5, -1, -1});
  CHECK(forced_after(bound_of(99, false), {2, 3, 4, 5, 0}, 0) == Ids{-1, -1, 4, 5, -1, -1});
  CHECK(forced_after(bound_of(99, true), {0, 9, 0, 0}, 3) == Ids(5, -1));  // it had ended
  // A sample that resumes after the first token of the closing.
  ReasoningProgress progress;
  const Ids tokens = {0, 0, 4};
  CHECK(progress.forced(bound_of(99, true), tokens, true) == 5);
}

}  // namespace
}  // namespace hearth::engine
