#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "engine/speculation/acceptance.h"
#include "engine/speculation/lookup_index.h"
#include "engine/speculation/width_choice.h"

namespace hearth::engine {
namespace {

using Tokens = std::vector<int32_t>;

Tokens drafted(LookupIndex& index, const Tokens& text, int32_t count) {
  Tokens out;
  LookupIndex::draft(text, index.find(text), count, out);
  return out;
}

TEST_CASE("lookup: proposes what followed last time, by the longest run before it") {
  LookupIndex index(1000);
  CHECK(drafted(index, {1}, 4).empty());
  CHECK(drafted(index, {1, 2}, 4).empty());
  CHECK(drafted(index, {1, 2, 3}, 4).empty());
  // "2 3" occurred at 1 and was followed by 4.
  CHECK(drafted(index, {1, 2, 3, 4, 5, 2, 3}, 2) == Tokens{4, 5});
  // Twice now: "2 3" followed by 9 is newer, "5 2 3" followed by 9 is also longer.
  CHECK(drafted(index, {1, 2, 3, 4, 5, 2, 3, 9, 7, 5, 2, 3}, 1) == Tokens{9});
  // "1 2 3" is older and longer than the others.
  CHECK(drafted(index, {1, 2, 3, 4, 5, 2, 3, 9, 7, 5, 2, 3, 0, 1, 2, 3}, 3) == Tokens{4, 5, 2});
}

TEST_CASE("lookup: a loop continues beyond the written text") {
  LookupIndex index(100);
  CHECK(drafted(index, {7, 8, 7, 8, 7, 8}, 5) == Tokens{7, 8, 7, 8, 7});
  LookupIndex same(100);
  CHECK(drafted(same, {4, 4, 4}, 4) == Tokens{4, 4, 4, 4});
}

/// The longest run of equal tokens that ends at an earlier place, by trying all; newest of equals.
LookupIndex::Match slow_find(const Tokens& text, int32_t oldest) {
  LookupIndex::Match best;
  const auto size = static_cast<int32_t>(text.size());
  for (int32_t end = size - 2; end >= std::max(1, oldest); --end) {
    int32_t length = 0;
    while (length < LookupIndex::kMaxMatch && length <= end &&
           text[static_cast<size_t>(end - length)] == text[static_cast<size_t>(size - 1 - length)])
      ++length;
    if (length >= LookupIndex::kMinMatch && length > best.length) best = {end + 1, length};
  }
  return best;
}

TEST_CASE("lookup, token by token, finds what trying all places finds") {
  std::mt19937 random(5);
  int found = 0;
  for (const int32_t vocab : {3, 8, 40}) {
    CAPTURE(vocab);
    LookupIndex index(300);
    Tokens text;
    while (text.size() < 300) {
      // Random tokens, sometimes a copy of an earlier stretch.
      if (text.size() > 20 && random() % 8 == 0) {
        const size_t from = random() % (text.size() - 10);
        for (size_t i = 0; i < 10; ++i) text.push_back(text[from + i]);
      } else {
        text.push_back(static_cast<int32_t>(random() % static_cast<uint32_t>(vocab)));
      }
      if (random() % 3 == 0) continue;  // several tokens at once
      const LookupIndex::Match match = index.find(text);
      const LookupIndex::Match all = slow_find(text, 1);
      // If there are more candidates than are examined, an older, longer one may be missed.
      if (vocab == 40) {
        CHECK(match.length == all.length);
        CHECK(match.next == all.next);
      } else {
        CHECK(match.length <= all.length);
        CHECK((match.length > 0) == (all.length > 0));
      }
      found += match.length > 0 ? 1 : 0;
      if (match.length == 0) continue;
      for (int32_t i = 1; i <= match.length; ++i) {
        CHECK(text[static_cast<size_t>(match.next - i)] ==
              text[text.size() - static_cast<size_t>(i)]);
      }
    }
  }
  CHECK(found > 150);
}

TEST_CASE("lookup keeps a bounded part of an endless text") {
  LookupIndex index(64);
  CHECK(index.bytes() == 2 * 64 * sizeof(int32_t));
  CHECK(LookupIndex(1 << 30).bytes() == 2 * LookupIndex::kMaxCapacity * sizeof(int32_t));
  std::mt19937 random(6);
  Tokens text;
  for (int i = 0; i < 5000; ++i) {
    text.push_back(static_cast<int32_t>(random() % 6));
    const LookupIndex::Match match = index.find(text);
    if (match.length == 0) continue;
    REQUIRE(match.next > i - 66);  // nothing older than the capacity
    for (int32_t k = 1; k <= match.length; ++k) {
      REQUIRE(text[static_cast<size_t>(match.next - k)] ==
              text[text.size() - static_cast<size_t>(k)]);
    }
  }
  // And a longer prompt than that, at once.
  LookupIndex late(64);
  const size_t size = text.size();
  text.insert(text.end(), {text[size - 10], text[size - 9]});
  CHECK(late.find(text).next >= static_cast<int32_t>(text.size()) - 66);
}

TEST_CASE("acceptance starts at its prior and follows the observations") {
  Acceptance acceptance(0.5);
  for (int i = 0; i < 10; ++i) acceptance.add(false);
  CHECK(acceptance.chance() < 0.2);
  for (int i = 0; i < 100; ++i) acceptance.add(true);
  CHECK(acceptance.chance() > 0.9);
  std::mt19937 random(7);
  for (int i = 0; i < 500; ++i) acceptance.add(random() % 10 < 3);
  CHECK(acceptance.chance() > 0.1);
  CHECK(acceptance.chance() < 0.5);
}

double flat(int32_t rows) { return 1000.0 + rows; }
double linear(int32_t rows) { return 1000.0 * rows; }

TEST_CASE("width: all likely tokens where rows are free, none where they cost what they save") {
  std::vector<WidthChoice> choices = {
      {every_place(0.9), 8, 0}, {every_place(0.5), 4, 0}, {every_place(0.0), 8, 0}};
  CHECK(choose_widths(choices, 3, 32, flat) > 2);
  CHECK(choices[0].width == 8);
  CHECK(choices[1].width == 4);
  CHECK(choices[2].width == 0);
  CHECK(choose_widths(choices, 3, 32, linear) == 1);
  for (const WidthChoice& choice : choices) CHECK(choice.width == 0);
}

TEST_CASE("width: the likeliest first, within the available rows") {
  std::vector<WidthChoice> choices = {{every_place(0.5), 8, 0}, {every_place(0.9), 8, 0}};
  choose_widths(choices, 2, 5, flat);
  CHECK(choices[0].width == 0);
  CHECK(choices[1].width == 5);
  choose_widths(choices, 2, 0, flat);
  CHECK(choices[1].width == 0);
}

TEST_CASE("width: a branch comes before places of the chain that are less likely") {
  std::vector<WidthChoice> choices = {
      {every_place(0.5), 8, 0, {{0, 0.3, 2}, {1, 0.3, 1}, {1, 0.9, 1}}}};
  WidthChoice& choice = choices.front();
  const auto widths = [&] {
    return std::vector<int32_t>{choice.width, choice.branches[0].width, choice.branches[1].width,
                                choice.branches[2].width};
  };
  // 0.5; then 0.3, and 0.25 twice: no branch is likelier than the chain; 0.15 twice; 0.125.
  choose_widths(choices, 1, 1, flat);
  CHECK(widths() == std::vector<int32_t>{1, 0, 0, 0});
  choose_widths(choices, 1, 2, flat);
  CHECK(widths() == std::vector<int32_t>{1, 1, 0, 0});
  choose_widths(choices, 1, 4, flat);
  CHECK(widths() == std::vector<int32_t>{2, 1, 0, 1});
  choose_widths(choices, 1, 7, flat);
  CHECK(widths() == std::vector<int32_t>{3, 2, 1, 1});
  choose_widths(choices, 1, 0, flat);
  CHECK(widths() == std::vector<int32_t>{0, 0, 0, 0});
  choose_widths(choices, 1, 32, linear);
  CHECK(widths() == std::vector<int32_t>{0, 0, 0, 0});
}

TEST_CASE("width: each place counts with its own chance, those further on with the last one's") {
  const auto tenth = [](int32_t rows) { return 1000.0 + 150 * (rows - 1); };
  std::vector<WidthChoice> choices = {{{0.8, 0.65, 0.5, 0.5}, 8, 0}};
  // 1.8, 2.32, 2.58, 2.71 tokens in 1.15, 1.3, 1.45, 1.6 ms.
  CHECK(choose_widths(choices, 1, 32, tenth) == doctest::Approx(2.32 / 1.3));
  CHECK(choices[0].width == 2);
  choices[0].chances = {0.2, 1, 1, 1};  // an unlikely first one, then all or nothing
  choose_widths(choices, 1, 32, flat);
  CHECK(choices[0].width == 8);
  choices[0].branches = {{2, 0.4, 1}};
  choices[0].chances = {0.9, 0.8, 0.5, 0.1};
  choose_widths(choices, 1, 4, flat);  // 0.9, 0.72, 0.36, then 0.9 * 0.8 * 0.4
  CHECK(choices[0].width == 3);
  CHECK(choices[0].branches[0].width == 1);
}

TEST_CASE("width: over an expensive row to cheap ones, if they pay together") {
  // Rows come in fours: the second costs as much as the second to the fourth together.
  const auto fours = [](int32_t rows) { return 1000.0 * (1 + 0.5 * ((rows - 1 + 2) / 3)); };
  std::vector<WidthChoice> choices = {{every_place(0.9), 8, 0}};
  choose_widths(choices, 1, 32, fours);
  CHECK(choices[0].width % 3 == 0);
  CHECK(choices[0].width > 0);
  choices[0].chances = every_place(0.2);
  choose_widths(choices, 1, 32, fours);
  CHECK(choices[0].width == 0);
  // The cost of drafting counts, too.
  choices[0].chances = every_place(0.9);
  choose_widths(choices, 1, 32, fours, 1e6);
  CHECK(choices[0].width == 0);
}

}  // namespace
}  // namespace hearth::engine
