#include "engine/speculation/replay_pattern.h"

#include <doctest/doctest.h>

#include <string>

namespace hearth::engine {
namespace {

ReplayPattern parsed(const std::string& text) {
  auto pattern = ReplayPattern::parse(text);
  REQUIRE_MESSAGE(pattern.ok(), text);
  return std::move(pattern).value();
}

double share_right(const ReplayPattern& pattern, size_t place) {
  constexpr size_t kPositions = 20'000;
  size_t right = 0;
  for (size_t i = 0; i < kPositions; ++i) right += pattern.right(i, place) ? 1 : 0;
  return static_cast<double>(right) / kPositions;
}

TEST_CASE("a chance holds at every place, and a position is equally lucky each time") {
  const ReplayPattern pattern = parsed("0.8");
  CHECK(share_right(pattern, 0) == doctest::Approx(0.8).epsilon(0.02));
  for (size_t i = 0; i < 100; ++i) CHECK(pattern.right(i, 0) == pattern.right(i, 7));
  CHECK(share_right(parsed("0"), 0) == 0);
  CHECK(share_right(parsed("1"), 3) == 1);
}

TEST_CASE("chances by place, the last one for all later places") {
  const ReplayPattern pattern = parsed("0.9,0.5,0.1");
  CHECK(share_right(pattern, 0) == doctest::Approx(0.9).epsilon(0.02));
  CHECK(share_right(pattern, 1) == doctest::Approx(0.5).epsilon(0.04));
  CHECK(share_right(pattern, 2) == doctest::Approx(0.1).epsilon(0.1));
  CHECK(share_right(pattern, 9) == share_right(pattern, 2));
}

TEST_CASE("bits by position, repeated, and another seed gives others") {
  const ReplayPattern bits = parsed("1101");
  for (size_t i = 0; i < 20; ++i) CHECK(bits.right(i, i % 3) == (i % 4 != 2));
  const ReplayPattern a = parsed("0.5:1"), b = parsed("0.5:2"), again = parsed("0.5:1");
  size_t differ = 0;
  for (size_t i = 0; i < 1000; ++i) {
    CHECK(a.right(i, 0) == again.right(i, 0));
    differ += a.right(i, 0) != b.right(i, 0) ? 1 : 0;
  }
  CHECK(differ > 300);
}

TEST_CASE("an invalid pattern is refused with what is wanted") {
  for (const char* text : {"", "1.5", "-0.1", "nan", "0.5,", ",0.5", "0.5,x", "0.8:", "0.8:x", "12",
                           "0.8:-1", "0.8 ", "0.8:1:2"}) {
    CAPTURE(text);
    const auto pattern = ReplayPattern::parse(text);
    REQUIRE_FALSE(pattern.ok());
    CHECK(pattern.error().code == ErrorCode::kInvalidArgument);
    CHECK(pattern.error().field == "replay");
    CHECK(pattern.error().message.find("want a chance") != std::string::npos);
  }
  std::string many = "0.5";
  for (int i = 0; i < 64; ++i) many += ",0.5";
  CHECK_FALSE(ReplayPattern::parse(many).ok());
}

TEST_CASE("a script spoils the text it has, and proposes nothing else") {
  ReplayScript script(parsed("1101"), 50);
  LiveRequest live;
  live.request.id = 4;
  live.request.prompt = {1, 2, 3};
  Sequence seq;
  seq.request = &live;
  CHECK_FALSE(script.draft(seq, 3, 0).has_value());
  script.know(4, 0, {10, 11, 12, 49, 14});
  CHECK_FALSE(script.draft(seq, 2, 0).has_value());
  CHECK(script.draft(seq, 3, 0) == 10);
  CHECK(script.draft(seq, 4, 1) == 11);
  CHECK(script.draft(seq, 6, 3) == 0);  // 49 spoiled, in a vocabulary of 50
  CHECK(script.draft(seq, 7, 4) == 14);
  CHECK_FALSE(script.draft(seq, 8, 5).has_value());
  seq.sample = 1;
  CHECK_FALSE(script.draft(seq, 3, 0).has_value());
}

}  // namespace
}  // namespace hearth::engine
