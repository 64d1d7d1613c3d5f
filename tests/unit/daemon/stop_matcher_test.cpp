#include "daemon/worker/text/stop_matcher.h"

#include <doctest/doctest.h>

#include <random>

namespace hearth::worker {
namespace {

TEST_CASE("without stop strings text passes at once") {
  StopMatcher matcher({});
  CHECK(matcher.push("abc") == "abc");
  CHECK(matcher.finish() == "");
  CHECK_FALSE(matcher.matched());
}

TEST_CASE("a stop string over several pieces is found, and none of it is shown") {
  StopMatcher matcher({"END"});
  CHECK(matcher.push("one E") == "one ");
  CHECK(matcher.push("N") == "");
  CHECK(matcher.which() == "");
  CHECK_FALSE(matcher.matched());
  CHECK(matcher.push("D two") == "");
  CHECK(matcher.matched());
  CHECK(matcher.push("more") == "");
  CHECK(matcher.finish() == "");
}

TEST_CASE("text that only began like a stop string is shown") {
  StopMatcher matcher({"ENDE", "\n\n"});
  CHECK(matcher.push("xEN") == "x");
  CHECK(matcher.push("DX") == "ENDX");
  CHECK(matcher.push("\n") == "");
  CHECK(matcher.push("y") == "\ny");
  CHECK(matcher.push("EEND") == "E");
  CHECK(matcher.finish() == "END");
}

TEST_CASE("of several stop strings the first in the text counts") {
  StopMatcher matcher({"cd", "abcd", "b"});
  CHECK(matcher.push("xxabcd") == "xx");
  CHECK(matcher.which() == "abcd");
  CHECK(matcher.matched());
}

TEST_CASE("overlapping repetitions") {
  StopMatcher matcher({"aab"});
  std::string shown;
  for (const char* piece : {"a", "a", "a", "a", "b", "c"}) shown += matcher.push(piece);
  CHECK(shown == "aa");
  CHECK(matcher.matched());
}

// Property: however the text is split, the shown text is the text before the first match, or all.
TEST_CASE("any split of the text shows the same") {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (int i = 0; i < 24; ++i) text += static_cast<char>('a' + random() % 3);
    std::string stop;
    for (unsigned i = 0; i < 1 + random() % 4; ++i) stop += static_cast<char>('a' + random() % 3);
    StopMatcher matcher({stop});
    std::string shown;
    for (size_t at = 0; at < text.size();) {
      const size_t length = 1 + random() % 4;
      shown += matcher.push(text.substr(at, length));
      at += length;
    }
    shown += matcher.finish();
    CAPTURE(text);
    CAPTURE(stop);
    CHECK(shown == text.substr(0, text.find(stop)));
    CHECK(matcher.matched() == (text.find(stop) != std::string::npos));
  }
}

}  // namespace
}  // namespace hearth::worker
