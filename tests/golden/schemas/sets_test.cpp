// Multiples, distinct items, and what the automata of patterns decide, compared with all small
// cases.

#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <regex>

#include "engine/grammar/text_automaton.h"
#include "engine/grammar/text_sets.h"
#include "kernels/base/numbers.h"
#include "tests/golden/schemas/accepted_texts.h"
#include "tests/skip.h"

namespace hearth::golden {
namespace {

using nlohmann::json;

TEST_CASE("multiples, alone and next to bounds") {
  check_values({
      {R"({"type":"integer","multipleOf":7})", {"0", "7", "-14", "700000007"}, {"1", "-0", "07"}},
      {R"({"type":"number","multipleOf":25,"minimum":0})",
       {"0", "25", "1000"},
       {"-25", "5", "2.5"}},
      {R"({"type":"integer","multipleOf":5,"minimum":7,"maximum":20})",
       {"10", "15", "20"},
       {"5", "25", "12"}},
      {R"({"type":"number","multipleOf":0.01})", {"1", "1.5", "-0.25"}, {"0.125", "1e-3"}},
      {R"({"type":"integer","multipleOf":3,"minimum":5,"maximum":5000})",
       {"6", "4998", "3333"},
       {"3", "5001", "7", "-6"}},
      {R"({"multipleOf":86400})", {"0", "86400", "-86400", "864000000000000"}, {"1", "43200"}},
      {R"({"type":"integer","multipleOf":997,"minimum":-1000})",
       {"-997", "0", "997", "997000"},
       {"-1994", "998"}},
      {R"({"type":"integer","multipleOf":1000003})",
       {"0", "1000003", "-2000006", "10000030"},
       {"1000004", "-1"}},
      {R"({"type":"integer","multipleOf":999999999999989})",
       {"0", "999999999999989", "-999999999999989"},
       {"1", "999999999999988"}},
      {R"({"type":"number","multipleOf":0.25,"minimum":-1,"exclusiveMaximum":10})",
       {"0.00", "0.25", "-1.00", "-0.75", "9.75"},
       {"0.30", "10.00", "-1.25", "0.255", "00.25"}},
      {R"({"type":"integer","multipleOf":2.5,"minimum":1})", {"5", "10"}, {"0", "2.5", "4"}},
      {R"({"type":"integer","multipleOf":0.5,"maximum":3})", {"-7", "3"}, {"4", "1.5"}},
      {R"({"type":"number","multipleOf":0.1,"minimum":0,"maximum":1})",
       {"0", "0.5", "1"},
       {"0.55", "1.1"}},
  });
}

TEST_CASE("multiples: all numbers of a range, decided one by one") {
  const int64_t most = tests::full_counts() ? 30'000 : 3'000;
  const std::pair<const char*, const char*> bounds[] = {
      {"", ""},
      {R"(,"minimum":0)", ""},
      {R"(,"minimum":-17)", R"(,"maximum":1005)"},
      {R"(,"minimum":12)", ""},
      {"", R"(,"exclusiveMaximum":-99)"},
      {R"(,"exclusiveMinimum":99)", R"(,"maximum":1000)"},
  };
  for (const int64_t of : {2, 7, 10, 12, 64, 99, 100, 125, 997}) {
    for (const auto& [low, high] : bounds) {
      const std::string schema =
          R"({"type":"integer","multipleOf":)" + std::to_string(of) + low + high + "}";
      CAPTURE(schema);
      const json parsed = json::parse(schema);
      const int64_t above = parsed.value("exclusiveMinimum", parsed.value("minimum", -most) - 1);
      const int64_t below = parsed.value("exclusiveMaximum", parsed.value("maximum", most) + 1);
      const auto grammar = compile_json_schema(schema);
      if (!grammar.ok()) {  // there are none
        for (int64_t n = above + 1; n < below; ++n) REQUIRE(n % of != 0);
        continue;
      }
      Constraint c = constraint_of(grammar);
      for (int64_t n = -most; n <= most; ++n) {
        const bool wanted = n % of == 0 && n > above && n < below;
        if (accepts(c, std::to_string(n)) != wanted) FAIL_CHECK(n);
      }
    }
  }
}

TEST_CASE("multiples of any number are a grammar of bounded size") {
  std::mt19937_64 random(3);
  for (const int64_t of : {1'009L, 7'919L, 65'537L, 1'000'003L, 87'178'291'199L, 46'116'860'184L}) {
    for (const char* bound : {"", R"(,"minimum":5)", R"(,"maximum":123456789)"}) {
      const std::string schema = R"({"multipleOf":)" + std::to_string(of) + bound + "}";
      CAPTURE(schema);
      const auto grammar = compile_json_schema(schema);
      if (!grammar.ok()) continue;  // none lies there
      CHECK(grammar->num_nodes() < 200'000);
      Constraint c = constraint_of(grammar);
      for (int i = 0; i < 300; ++i) {
        const auto n = narrow<int64_t>(random() % (uint64_t{1} << (1 + i % 49)));
        if (n % of != 0) CHECK_FALSE(accepts(c, std::to_string(n)));
      }
      // Random ways through the grammar lead to multiples.
      for (int i = 0; i < 20; ++i) {
        std::string text;
        int32_t state = Constraint::kStart;
        while (true) {
          std::vector<char> ways;
          for (const char byte : {'-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9'}) {
            if (c.advance_byte(state, static_cast<uint8_t>(byte)) != Constraint::kDead)
              ways.push_back(byte);
          }
          if (ways.empty()) break;
          text += ways[random() % ways.size()];
          state = c.advance_byte(state, static_cast<uint8_t>(text.back()));
        }
        REQUIRE(c.accepts(state));
        CHECK_MESSAGE(std::stoll(text) % of == 0, text);
        CHECK(text.size() <= 16);
      }
    }
  }
}

TEST_CASE("distinct items, by their values or their places") {
  check_values({
      {R"({"type":"array","items":{"enum":["a","b","a"]},"uniqueItems":true})",
       {"[]", R"(["a"])", R"(["b"])", R"(["a","b"])"},
       {R"(["a","a"])", R"(["a","b","a"])"}},
      {R"({"type":"array","items":{"type":"boolean"},"uniqueItems":true,"minItems":2})",
       {"[true,false]"},
       {"[]", "[true]", "[true,true]"}},
      {R"({"type":"array","items":{"enum":[1,2,3]},"uniqueItems":true,"maxItems":2})",
       {"[]", "[1,3]", "[2, 3]"},
       {"[1,2,3]", "[3,3]"}},
      {R"({"type":"array","uniqueItems":true,"maxItems":1})", {"[]", "[7]"}, {"[1,2]"}},
      // 1 and 1.0 are equal, 1 and true are not; nor is one object another because of its order.
      {R"({"items":{"enum":[1,1.0,true,{"a":1,"b":2},{"b":2,"a":1}]},"uniqueItems":true})",
       {"[1,true]", R"([true,{"a":1,"b":2}])"},
       {"[1,1.0]", "[1,1]", R"([{"a":1,"b":2},{"b":2,"a":1}])"}},
      {R"({"items":{"type":["boolean","null"]},"uniqueItems":true,"minItems":3})",
       {"[true,false,null]"},
       {"[true,false]", "[true,false,true]"}},
      {R"({"items":{"type":"boolean","nullable":true},"uniqueItems":true,"minItems":3})",
       {"[true,false,null]"},
       {"[null,null,null]"}},
      {R"({"items":{"type":"integer","minimum":1,"maximum":6},"uniqueItems":true})",
       {"[]", "[1,2,3,4,5,6]", "[2,6]"},
       {"[1,1]", "[7]", "[1,2,3,4,5,6,1]"}},
      {R"({"items":{"type":"integer","minimum":1,"maximum":500,"multipleOf":50},
           "uniqueItems":true,"maxItems":3})",
       {"[50,500]", "[50, 100,450]"},
       {"[50,50]", "[1]", "[50,100,150,200]"}},
      {R"({"items":{"anyOf":[{"const":"a"},{"enum":["b","a"]},{"type":"null"}]},
           "uniqueItems":true})",
       {R"(["a","b",null])", R"(["b"])"},
       {R"(["a","a"])", R"([null,null])"}},
      {R"({"items":{"$ref":"#/$defs/c"},"$defs":{"c":{"enum":["x","y"]}},"uniqueItems":true})",
       {R"(["x","y"])"},
       {R"(["x","x"])"}},
      // Places whose values differ by type or constant.
      {R"({"prefixItems":[{"type":"string"},{"type":"integer"},{"const":null}],
           "uniqueItems":true})",
       {R"(["a",1,null])", R"(["a"])"},
       {R"(["a",1,null,1])", R"(["a","a"])"}},
      {R"({"prefixItems":[{"enum":["a"]},{"enum":["b","c"]}],"items":{"type":"integer"},
           "maxItems":3,"uniqueItems":true})",
       {R"(["a","c",7])", "[]"},
       {R"(["a","a"])", R"(["a","b",1,2])"}},
  });
}

TEST_CASE("whether two patterns match one text, compared with all texts of a few letters") {
  const char* patterns[] = {"^a*b?$", "ab",      "^(a|b)+$",     "^(ab|ba){1,2}$", "^b$",
                            "b$",     "^[^b]*$", "^a{2,3}$",     "^(aa)*b$",       "^a(aa)*b$",
                            "^$",     "^bbbb$",  "^(a|ab)(b|a)$"};
  std::vector<std::string> texts = {""};
  for (size_t i = 0; texts.back().size() < 6; ++i) {
    for (const char c : {'a', 'b'}) texts.push_back(texts[i] + c);
  }
  const auto automaton = [](const char* pattern) {
    const auto piece =
        compile_pattern(pattern, [](const CharRanges& chars) { return chars_piece(chars); });
    REQUIRE(piece.ok());
    auto out = TextAutomaton::of(*piece);
    REQUIRE(out.ok());
    return std::move(out).value();
  };
  for (const char* first : patterns) {
    const std::regex of_first(first);
    const TextAutomaton one = automaton(first);
    CHECK(one.matches_empty() == std::regex_search("", of_first));
    for (const char* second : patterns) {
      CAPTURE(first);
      CAPTURE(second);
      const std::regex of_second(second);
      const bool wanted = std::ranges::any_of(texts, [&](const std::string& text) {
        return std::regex_search(text, of_first) && std::regex_search(text, of_second);
      });
      int64_t steps = kTextSetSteps;
      CHECK(TextAutomaton::share_text(one, automaton(second), &steps) == wanted);
      steps = 0;
      CHECK_FALSE(TextAutomaton::share_text(one, automaton(second), &steps));
    }
    // What may follow a whole text.
    int64_t steps = kTextSetSteps;
    const auto after = one.bytes_after(&steps);
    REQUIRE(after);
    for (const char c : {'a', 'b'}) {
      const bool wanted = std::ranges::any_of(texts, [&](const std::string& text) {
        if (text.size() > 4 || !std::regex_search(text, of_first)) return false;
        return std::ranges::any_of(texts, [&](const std::string& longer) {
          return longer.starts_with(text + c) && std::regex_search(longer, of_first);
        });
      });
      CAPTURE(first);
      CAPTURE(c);
      CHECK(after->test(static_cast<uint8_t>(c)) == wanted);
    }
  }
}

}  // namespace
}  // namespace hearth::golden
