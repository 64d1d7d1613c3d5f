// Grammars of schemas and of GBNF: what they accept compared with Python's jsonschema and with a
// validator of our own; masks compared with asking about every token; what is refused, and by what
// name.

#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <random>
#include <regex>

#include "engine/grammar/text_sets.h"
#include "tests/golden/schemas/accepted_texts.h"
#include "tests/golden/schemas/schema_check.h"
#include "tests/paths.h"
#include "tests/skip.h"

namespace hearth::golden {
namespace {

using namespace engine;
using nlohmann::json;

json schemas() {
  std::ifstream in(hearth::tests::source_path("tests/golden/schemas/schemas.json"));
  REQUIRE(in.is_open());
  return json::parse(in);
}

TEST_CASE("a schema's grammar accepts only valid values, and all that hearth writes") {
  size_t checked = 0;
  const json golden = schemas();
  const std::vector<std::string> pool = golden["pool"];
  for (const json& each : golden["cases"]) {
    const std::string source = each["schema"], valid = each["valid"];
    INFO(source);
    Constraint c = constraint_of(compile_json_schema(source));
    const json schema = json::parse(source);
    for (const std::string& text : each["must"].get<std::vector<std::string>>()) {
      CHECK_MESSAGE(accepts(c, text), text);
      CHECK_MESSAGE(is_valid_against(schema, text), text);
    }
    REQUIRE(valid.size() == pool.size());
    for (size_t i = 0; i < pool.size(); ++i) {
      if (accepts(c, pool[i])) CHECK_MESSAGE(valid[i] == '1', pool[i]);
      CHECK_MESSAGE((valid[i] == '0' || is_valid_against(schema, pool[i])), pool[i]);
      ++checked;
    }
  }
  CHECK(checked > 5000);
}

TEST_CASE("random texts drawn under a schema's grammar are valid") {
  std::mt19937 random(5);
  const bool full = tests::full_counts();
  const auto trie = small_vocabulary();
  size_t ended = 0, cut = 0;
  const json all = schemas()["cases"];
  for (const json& each : all) {
    const std::string source = each["schema"];
    const json schema = json::parse(source);
    Constraint c = constraint_of(compile_json_schema(source));
    for (int sample = 0; sample < (full ? 50 : 3); ++sample) {
      std::string text;
      int32_t state = Constraint::kStart;
      for (int step = 0; step < 400; ++step) {
        const Constraint::Mask& mask = c.mask(state);
        if (c.accepts(state) && (mask.count == 0 || random() % 4 == 0)) break;
        REQUIRE_MESSAGE(mask.count > 0, source << " stuck after " << text);
        std::vector<int32_t> allowed;
        for (int32_t id = 0; id < trie->vocab_size(); ++id) {
          const auto at = static_cast<size_t>(id);
          if ((mask.bits[at / 64] >> (at % 64) & 1) != 0) allowed.push_back(id);
        }
        CHECK(static_cast<int64_t>(allowed.size()) == mask.count);
        const int32_t token = allowed[random() % allowed.size()];
        text += trie->piece(token);
        state = c.advance(state, token);
      }
      if (!c.accepts(state)) {
        ++cut;
        continue;
      }
      ++ended;
      CHECK_MESSAGE(is_valid_against(schema, text), source << "\n" << text);
    }
  }
  CHECK(ended > 200);
  CHECK(cut * 5 < ended);
}

TEST_CASE("a mask equals asking about every token separately") {
  std::mt19937 random(6);
  const auto trie = small_vocabulary();
  const json all = schemas()["cases"];
  for (size_t i = 0; i < all.size(); i += 3) {
    const std::string source = all[i]["schema"];
    Constraint c = constraint_of(compile_json_schema(source));
    Constraint other = constraint_of(compile_json_schema(source));
    int32_t state = Constraint::kStart, same = Constraint::kStart;
    for (int step = 0; step < 30; ++step) {
      const std::vector<uint64_t> bits = c.mask(state).bits;
      std::vector<int32_t> allowed;
      for (int32_t id = 0; id < trie->vocab_size(); ++id) {
        const bool may = other.advance(same, id) != Constraint::kDead;
        const auto at = static_cast<size_t>(id);
        REQUIRE(((bits[at / 64] >> (at % 64) & 1) != 0) == may);
        if (may) allowed.push_back(id);
      }
      CHECK(c.accepts(state) == other.accepts(same));
      if (allowed.empty()) break;
      const int32_t token = allowed[random() % allowed.size()];
      state = c.advance(state, token);
      same = other.advance(same, token);
    }
  }
}

TEST_CASE("GBNF grammars") {
  Constraint list = constraint_of(compile_gbnf(R"(
# a list of words
root  ::= "[" word ("," " "? word)* "]" | "none"
word  ::= [a-zà-ü] [^\],\x00-\x1f]{0,3}   # at most four
)"));
  for (const char* good : {"[a]", "[ab, cd]", "[à1,b]", "none", "[aé世x]"}) {
    CHECK_MESSAGE(accepts(list, good), good);
  }
  for (const char* bad : {"", "[]", "[A]", "[abcde]", "[a,]", "nones", "[a", "[a\xC3]", "[a]]"}) {
    CHECK_MESSAGE(!accepts(list, bad), bad);
  }
  Constraint nest = constraint_of(compile_gbnf("root ::= \"(\" root? \")\"\n"));
  CHECK(accepts(nest, "((()))"));
  CHECK_FALSE(accepts(nest, "((())"));
  CHECK(accepts(nest, std::string(500, '(') + std::string(500, ')')));
  Constraint sums =
      constraint_of(compile_gbnf("root ::= term (\"+\" term)*\n"
                                 "term ::= [0-9]+ | \"(\" root \")\"\n"));
  CHECK(accepts(sums, "1+(2+33)+4"));
  CHECK_FALSE(accepts(sums, "1+()"));
  // A rule that ends with itself is a loop: no stack grows, so there are few states.
  Constraint loop = constraint_of(compile_gbnf("root ::= [ab] root | \"c\"\n"));
  CHECK(accepts(loop, std::string(3000, 'a') + "c"));
  CHECK(loop.num_states() < 10);
  Constraint any = constraint_of(compile_gbnf("root ::= .{2} \"\\u00e9\"\n"));
  CHECK(accepts(any, "\xF0\x9F\x98\x80x\xC3\xA9"));
  CHECK_FALSE(accepts(any, "\xC3\xC3\xC3\xA9"));
}

TEST_CASE("regular expressions bind the whole text") {
  const auto matches = [](const char* regex, const char* text) {
    Constraint constraint = constraint_of(compile_regex(regex));
    int32_t state = Constraint::kStart;
    for (const char* at = text; *at != 0 && state != Constraint::kDead; ++at) {
      state = constraint.advance_byte(state, static_cast<uint8_t>(*at));
    }
    return state != Constraint::kDead && constraint.accepts(state);
  };
  for (const char* regex : {"[0-9]{3}", "^[0-9]{3}$", "^[0-9]{3}", "\\d\\d\\d$"}) {
    CHECK(matches(regex, "123"));
    CHECK_FALSE(matches(regex, "1234"));
    CHECK_FALSE(matches(regex, "a123"));
  }
  CHECK(matches("yes|no", "no"));
  CHECK_FALSE(matches("yes|no", "yesno"));
  CHECK(matches("^yes|no$", "no"));
  CHECK(matches("a\\$", "a$"));
  CHECK(matches("a\\\\$", "a\\"));
  CHECK(matches("(a|\xc3\xa9)+", "a\xc3\xa9"));
  for (const char* wrong : {"(", "[", "(?=a)", "a{2,1}", "\\1", "a)(b", "a$b", "a^"}) {
    CAPTURE(wrong);
    const auto refused = compile_regex(wrong);
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.error().field == "regex");
  }
}

TEST_CASE("unsupported constructs are refused by name") {
  const std::pair<const char*, const char*> refused[] = {
      {R"({"type":"array","uniqueItems":true})", "uniqueItems"},
      {R"({"allOf":[{"properties":{"a":{}},"additionalProperties":false},
                    {"patternProperties":{"^x":{}}}]})",
       "additionalProperties"},
      {R"({"patternProperties":{"a":{"type":"null"},"b":{}}})", "patternProperties"},
      {R"({"not":{}})", "not"},
      {R"({"if":{}})", "if"},
      {R"({"type":"array","items":{"type":"integer","minimum":0},"uniqueItems":true})",
       "uniqueItems"},
      {R"({"items":{"enum":["a","b"]},"uniqueItems":true,"minItems":3})", "minItems"},
      {R"({"prefixItems":[{"enum":["a","b"]},{"enum":["b","c"]}],"uniqueItems":true})",
       "uniqueItems"},
      {R"({"prefixItems":[{"const":1},{"type":"null"}],"items":{"type":"string"},
           "uniqueItems":true})",
       "uniqueItems"},
      {R"({"patternProperties":{"^a":{"type":"null"},"b$":{"type":"integer"}}})",
       "one key may match"},
      {R"({"patternProperties":{"^a":{"const":1},"a$":{"const":true}}})", "one key may match"},
      {R"({"type":"number","multipleOf":0.0000003})", "multipleOf"},
      {R"({"type":"integer","multipleOf":1e16})", "multipleOf"},
      {R"({"type":"integer","multipleOf":50,"minimum":51,"maximum":99})", "multiple"},
      {R"({"type":"integer","multipleOf":0})", "multipleOf"},
      {R"({"type":"number","minimum":0.5})", "minimum"},
      {R"({"type":"string","format":"regex"})", "regex"},
      {R"({"type":"string","pattern":"(?=a)b"})", "group"},
      {R"({"type":"string","pattern":"a\\b"})", "\\b"},
      {R"({"type":"string","pattern":"(a)\\1"})", "\\1"},
      {R"({"type":"string","pattern":"^a{4}$","maxLength":3})", "length"},
      {R"({"type":"string","format":"date","maxLength":9})", "length"},
      {R"({"oneOf":[{"type":"string"},{"maxLength":3,"type":"string"}]})", "oneOf"},
      {R"({"$ref":"http://x/y"})", "$ref"},
      {R"({"$ref":"#/$defs/no"})", "$ref"},
      {R"({"type":"strin"})", "type"},
      {R"({"type":[]})", "type"},
      {R"({"enum":[]})", "enum"},
      {R"({"type":"integer","minimum":3,"maximum":2})", "minimum"},
      {R"({"minItems":3,"maxItems":2})", "maxItems"},
      {R"({"type":"string","minLength":100000})", "minLength"},
      {R"({"type":"object","minProperties":2})", "minProperties"},
      {R"({"required":["a"],"additionalProperties":false})", "required"},
      {R"({"$ref":"#"})", "begins with itself"},
      {R"({"allOf":[{"maxLength":1},{"maxLength":2}]})", "allOf"},
      {R"({"properties":{"a":false},"required":["a"]})", "false"},
      {R"([])", "a schema is"},
      {R"({"a")", "JSON"},
      {"", "JSON"},
  };
  for (const auto& [schema, named] : refused) {
    const auto met = compile_json_schema(schema);
    REQUIRE_MESSAGE(!met.ok(), schema);
    CHECK_MESSAGE(met.error().message.find(named) != std::string::npos,
                  schema << ": " << met.error().message);
    CHECK(met.error().field == "json_schema");
  }
  for (const char* grammar :
       {"", "root", "root ::=", "root ::= nope", "root ::= \"a", "root ::= [a", "root ::= (\"a\"",
        "root ::= \"a\"{3,2}", "root ::= root \"a\"", "root ::= x\nx ::= y\ny ::= x | \"a\"",
        "root ::= \"a\"\nroot ::= \"b\"", "root ::= \"\\q\"", "root ::= [z-a]", "root ::= \"\xFF\"",
        "root ::= \"a\"{99999999}", "other ::= \"a\"", "root ::= []"}) {
    const auto met = compile_gbnf(grammar);
    // Nothing between ::= and the end is the empty text, which is valid.
    if (std::string_view(grammar) == "root ::=") continue;
    CHECK_MESSAGE(!met.ok(), grammar);
    if (!met.ok()) CHECK(met.error().field == "grammar");
  }
}

TEST_CASE("formats and patterns next to lengths, members that are null") {
  check_values({
      {R"({"type":"string","pattern":"^[a-c]+$","minLength":2,"maxLength":3})",
       {R"("ab")", R"("abc")"},
       {R"("a")", R"("abcd")", R"("")"}},
      {R"({"type":"string","pattern":"a","maxLength":3})", {R"("a")", R"("xa")"}, {R"("xxaxx")"}},
      {R"({"type":"string","format":"date","minLength":10,"maxLength":10})",
       {R"("2024-02-28")"},
       {R"("2024-2-28")"}},
      {R"({"type":"string","format":"email","maxLength":12})",
       {R"("a@b.cd")"},
       {R"("abcdefghij@b.cd")"}},
      {R"({"type":"string","format":"uri"})",
       {R"("https://example.org/a/b?q=1")", R"("http://localhost")"},
       {R"("example")", R"("ftp://a")"}},
      {R"({"type":"string","pattern":"^(ab|cde){1,9}$","maxLength":4})",
       {R"("ab")", R"("abab")"},
       {R"("abcde")", R"("abababab")"}},
      {R"({"type":"string","maxLength":100000})", {R"("")"}, {"1"}},
      // A member that is null is absent, and a value that is null is one.
      {R"({"type":"object","properties":{"a":{"type":"integer","minimum":null,"maxLength":null}},
           "required":null,"additionalProperties":null,"allOf":null,"$ref":null})",
       {"{}", R"({"a":-1})"},
       {R"({"a":null})", "1"}},
      {R"({"anyOf":[{"const":null,"title":null},{"enum":[null,2]}]})", {"null", "2"}, {"1"}},
  });
}

TEST_CASE("patterns of keys, alone and next to properties") {
  check_values({
      {R"({"patternProperties":{"^x_[a-z]+$":{"type":"integer"}},"additionalProperties":false})",
       {"{}", R"({"x_a":1})", R"({"x_a":1,"x_b":2})"},
       {R"({"a":1})", R"({"x_a":"b"})"}},
      {R"({"patternProperties":{"^a$":{"type":"null"},"^b":{"type":"null"}}})",
       {R"({"a":null,"bb":null})"},
       {R"({"c":null})"}},
      // Different schemas, if no key matches two of the patterns.
      {R"({"patternProperties":{"^S_":{"type":"string"},"^I_":{"type":"integer"},
           "^[a-z]+$":{"type":"null"}},"additionalProperties":false})",
       {"{}", R"({"S_a":"x","I_":1,"abc":null})", R"({"I_0":1,"I_1":2})"},
       {R"({"S_a":1})", R"({"I_a":"x"})", R"({"abc":1})", R"({"X":null})"}},
      {R"({"patternProperties":{"^a[0-9]*$":{"type":"integer"},"^[^a]":{"const":true}},
           "properties":{"a1":{"minimum":5},"b":{}},"required":["b","a2"],"maxProperties":3})",
       {R"({"b":true,"a2":0})", R"({"a1":5,"b":true,"a2":0})"},
       {R"({"b":1,"a2":0})", R"({"b":true,"a2":true})", R"({"a1":4,"b":true,"a2":0})",
        R"({"b":true})", R"({"b":true,"a2":0,"a3":true})"}},
      {R"({"patternProperties":{"^x$":{"const":1},"^y$":{"const":true}},"maxProperties":2})",
       {R"({"x":1,"y":true})"},
       {R"({"x":true})", R"({"y":1})"}},
      {R"({"properties":{"a":{"type":"integer"},"b":{"type":"boolean"}},"required":["b"],
           "patternProperties":{"^x-":{"type":"null"}},"additionalProperties":false})",
       {R"({"b":true})", R"({"a":1,"b":true})", R"({"b":true,"x-":null,"x-b":null})",
        R"({"a":1, "b": false, "x-\"":null})"},
       {"{}", R"({"a":1})", R"({"b":true,"c":null})", R"({"b":true,"x-":1})",
        R"({"b":true,"x":null})", R"({"b":true,"b":null})", R"({"x-":null,"b":true})",
        R"({"b":true,)"}},
      // Keys that are named are written once, and have both schemas.
      {R"({"properties":{"x1":{"minimum":5},"x2":true,"x3":false,"y":{"type":"null"}},
           "patternProperties":{"^x":{"type":"integer"}},"additionalProperties":true})",
       {"{}", R"({"x1":5,"x2":7,"y":null,"x":1,"x11":2,"x4":3})"},
       {R"({"x1":4})", R"({"x1":5.5})", R"({"x2":null})", R"({"x3":1})",
        R"({"y":null,"x1":5,"x1":6})", R"({"z":1})"}},
      {R"({"properties":{"ab":{"type":"null"}},"patternProperties":{"a":{"type":"null"}},
           "required":["ca"],"maxProperties":3})",
       {R"({"ca":null})", R"({"ab":null,"ca":null})", R"({"ca":null,"xa":null})",
        R"({"ab":null,"ca":null,"aba":null})"},
       {R"({"ab":null})", R"({"ca":1})", R"({"ca":null,"ab":null})", R"({"ca":null,"b":null})",
        R"({"ca":null,"a":null,"aa":null,"aaa":null})"}},
      {R"({"properties":{"a":{"type":"null"}},"patternProperties":{"^a$":{}}})",
       {"{}", R"({"a":null})"},
       {R"({"a":1})", R"({"b":1})"}},
      {R"({"required":["x\u00e4"],"patternProperties":{"^x[\u00e0-\u00ff]$":{"type":"null"}},
           "additionalProperties":false})",
       {"{\"x\xc3\xa4\":null}", "{\"x\xc3\xa4\":null,\"x\xc3\xa5\":null}"},
       {"{}", "{\"x\xc3\xa4\":1}", R"({"x":null})"}},
  });
}

TEST_CASE("keys without those that are named: all texts of a few letters, decided one by one") {
  const char* patterns[] = {"^a*b?$", "ab", "^(a|b)+$", "^(ab|ba){1,2}$", "^(a*b*)*$",
                            "b$",     "^",  "^[^b]*$",  "^a{2,3}(b|aa)?$"};
  std::vector<std::string> texts = {""};
  for (size_t i = 0; texts.back().size() < 6; ++i) {
    for (const char c : {'a', 'b'}) texts.push_back(texts[i] + c);
  }
  const std::vector<std::string> names = {"", "a", "ab", "abab", "b", "bb", "aab", "aaa"};
  for (const char* pattern : patterns) {
    CAPTURE(pattern);
    const auto key =
        compile_pattern(pattern, [](const CharRanges& chars) { return chars_piece(chars); });
    REQUIRE(key.ok());
    const std::regex regex(pattern);
    for (size_t count = 0; count <= names.size(); ++count) {
      const std::vector<std::string> some(names.begin(), names.begin() + count);
      int64_t steps = kTextSetSteps;
      const auto rest = without_texts(*key, some, &steps);
      REQUIRE(rest);
      for (const std::string& text : texts) {
        const bool matches = std::regex_search(text, regex);
        CHECK(matches_text(*key, text, &steps) == matches);
        const bool named = std::ranges::count(some, text) > 0;
        CHECK_MESSAGE(matches_text(*rest, text, &steps) == (matches && !named), text);
      }
    }
  }
}

TEST_CASE("keys that take too much to decide are refused by name") {
  const std::string name(300, 'a');
  const std::string schema =
      R"({"patternProperties":{"^a+$":{}},"properties":{")" + name + R"(":{}}})";
  const auto met = compile_json_schema(schema);
  REQUIRE_FALSE(met.ok());
  CHECK(met.error().message.find("patternProperties of this pattern") != std::string::npos);
  std::vector<std::string> relaxed;
  CHECK(compile_json_schema(schema, &relaxed).ok());
  CHECK(relaxed.size() == 1);
  // A long pattern and many names are bounded together.
  std::string many = R"({"patternProperties":{"^)";
  for (int i = 0; i < 20'000; ++i) many += "a?";
  many += R"($":{}},"properties":{"b":{})";
  for (int i = 0; i < 2'000; ++i) many += ",\"a" + std::to_string(i) + "\":{}";
  CHECK_FALSE(compile_json_schema(many + "}}").ok());
  // Two patterns whose common texts take too long to look for.
  const std::string long_ones = R"({"patternProperties":{"^(a|b)*a(a|b){0,3000}c$":{"const":1},
                                   "^(a|b)*b(a|b){0,3000}d$":{"const":2}}})";
  const auto together = compile_json_schema(long_ones);
  REQUIRE_FALSE(together.ok());
  CHECK(together.error().message.find("one key may match") != std::string::npos);
  std::string different = R"({"patternProperties":{"x":0)";
  for (int i = 0; i < 20'000; ++i) {
    different += ",\"^a" + std::to_string(i) + "$\":{\"const\":" + std::to_string(i) + "}";
  }
  CHECK_FALSE(compile_json_schema(different + "}}").ok());
}

TEST_CASE("a schema that may be relaxed loses only what cannot be promised, by name") {
  using Names = std::vector<std::string>;
  const std::pair<const char*, Names> cases[] = {
      {R"({"type":"array","items":{"type":"integer"},"uniqueItems":true,"not":{}})",
       {"the keyword 'not'", "uniqueItems of values that are not listed"}},
      {R"({"type":"string","format":"regex","maxLength":3})", {"the format 'regex'"}},
      {R"({"type":"string","pattern":"(?=a)b"})", {"this pattern"}},
      {R"({"patternProperties":{"^a":{"type":"null"},"b$":{"type":"integer"}}})",
       {"patternProperties of different schemas that one key may match"}},
      {R"({"type":"number","multipleOf":0.0000003,"minimum":0.5})",
       {"this multipleOf", "minimum that is not whole"}},
      {R"({"oneOf":[{"type":"string"},{"type":"string","maxLength":3}]})",
       {"oneOf of branches that one value may both be of"}},
      {R"({"type":"object","minProperties":2})", {"minProperties here"}},
      {R"({"type":"boolean"})", {}},
  };
  for (const auto& [schema, wanted] : cases) {
    INFO(schema);
    Names met;
    CHECK(compile_json_schema(schema, &met).ok());
    CHECK(met == wanted);
    if (!wanted.empty()) CHECK_FALSE(compile_json_schema(schema).ok());
  }
  // What is wrong stays wrong.
  Names met;
  CHECK_FALSE(compile_json_schema(R"({"type":"strin"})", &met).ok());
  // The rest of the schema still binds.
  Constraint c = constraint_of(
      compile_json_schema(R"({"type":"string","format":"regex","maxLength":3})", &met));
  CHECK(accepts(c, "\"abc\""));
  CHECK_FALSE(accepts(c, "\"abcd\""));
}

TEST_CASE("hostile sources end soon") {
  std::string deep;
  for (int i = 0; i < 10000; ++i) deep += R"({"items":)";
  CHECK_FALSE(compile_json_schema(deep).ok());
  std::string wide = R"({"type":"object","properties":{)";
  for (int i = 0; i < 3000; ++i) {
    wide += "\"k" + std::to_string(i) + R"(":{"type":"string","maxLength":9000},)";
  }
  wide += R"("z":{"type":"null"}}})";
  const auto met = compile_json_schema(wide);
  std::string nulls = R"({"type":"null")";
  for (int i = 0; i < 5000; ++i) nulls += ",\"k" + std::to_string(i) + "\":null";
  CHECK(compile_json_schema(nulls + "}").ok());
  if (!met.ok()) CHECK(met.error().code == ErrorCode::kTooLarge);
  CHECK_FALSE(compile_gbnf("root ::= ((((\"a\"{9999}){9999}){9999}){9999})").ok());
  CHECK_FALSE(compile_json_schema(R"({"type":"string","pattern":"^((a{999}){999}){999}$"})").ok());
  // All stacks of nested rules stay distinct: the limit of states is reached, and reported.
  Constraint nest = constraint_of(compile_gbnf("root ::= \"(\" root? \")\"\n"));
  int32_t state = Constraint::kStart;
  for (int i = 0; i < 200'000 && state != Constraint::kDead; ++i)
    state = nest.advance_byte(state, '(');
  CHECK(state == Constraint::kDead);
  CHECK(nest.full());
}

TEST_CASE("one leading space is allowed where the shown text drops it") {
  const auto grammar = compile_json_schema(R"({"type":"boolean"})");
  REQUIRE(grammar.ok());
  Constraint c(*grammar, small_vocabulary(), true);
  CHECK(accepts(c, " true"));
  CHECK(accepts(c, "true"));
  CHECK_FALSE(accepts(c, "  true"));
  CHECK_FALSE(accepts(c, "t rue"));
}

}  // namespace
}  // namespace hearth::golden
