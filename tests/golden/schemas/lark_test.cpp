// Grammars in Lark's notation: what they accept, what is refused by name, and that no text is
// written that a lexer of longest tokens would cut otherwise.

#include <doctest/doctest.h>
#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <random>
#include <regex>

#include "tests/golden/schemas/accepted_texts.h"

namespace hearth::golden {
namespace {

using nlohmann::json;

std::string schema_of(const std::string& lark) {
  return json{{"type", "string"}, {"lark", lark}}.dump();
}

struct LarkCase {
  std::string lark;
  std::vector<std::string> good, bad;
};

void check_lark(const std::vector<LarkCase>& cases) {
  for (const LarkCase& each : cases) {
    INFO(each.lark);
    Constraint c = constraint_of(compile_json_schema(schema_of(each.lark)));
    for (const std::string& text : each.good) CHECK_MESSAGE(accepts(c, json(text).dump()), text);
    for (const std::string& text : each.bad) CHECK_MESSAGE(!accepts(c, json(text).dump()), text);
  }
}

TEST_CASE("lark: rules, terminals and their operators") {
  check_lark({
      {"start: \"a\" B? c* D+ | \"x\"\nB: \"b\"\nc: \"c\"\nD: \"d\"",
       {"ad", "abd", "abccdd", "x"},
       {"", "a", "abd d", "xx", "abbd"}},
      {"start: (\"a\" | \"b\")~2..3 [\"!\"]", {"ab", "bab!", "aa!"}, {"a", "aaaa", "!"}},
      {"start: \"a\"~2", {"aa"}, {"a", "aaa"}},
      {"?start: _x // comment\n  | y -> name\n!_x.2: \"x\"  # comment\ny: \"y\"i \"z\"",
       {"x", "yz", "Yz"},
       {"X", "yZ"}},
      {"start: HEX\nHEX: (\"0\"..\"9\" | \"a\"..\"f\")~4", {"0af9"}, {"0ag9", "0af", "0AF9"}},
      {"start: /[a-c]+\\/[^x]/ \"\\\"\\n\\u00e9\"",
       {"ab/d\"\n\u00e9"},
       {"ab/x\"\n\u00e9", "/d\"\n\u00e9"}},
      {"start: A\nA: B \"-\" B\nB: C+\nC: \"c\"", {"c-c", "ccc-c"}, {"c", "c-"}},
      // Rules that begin with themselves, and rules within themselves.
      {"start: expr\nexpr: expr \"+\" term | expr \"-\" term | term\n"
       "term: \"(\" expr \")\" | /[0-9]/",
       {"1", "1+2-3", "(1+2)-3", "((1))"},
       {"", "1+", "12", "(1", "+1"}},
      {"start: \"(\" start \")\" |", {"", "()", "((()))"}, {"(", "())"}},
      // Blanks are kept as the grammar has them.
      {"start: expr\nexpr: term (SP ADD SP term)* -> add\n  | term\n"
       "term: factor (SP MUL SP factor)* -> mul\n  | factor\nfactor: INT\n"
       "SP: \" \"\nADD: \"+\"\nMUL: \"*\"\n%import common.INT",
       {"1", "12 + 3", "1 * 2 + 33 * 4"},
       {"1+2", "1 +  2", "1 + ", "+ 1"}},
  });
}

TEST_CASE("lark: common terminals") {
  const std::tuple<const char*, std::vector<std::string>, std::vector<std::string>> cases[] = {
      {"DIGIT", {"7"}, {"77", "a"}},
      {"HEXDIGIT", {"7", "a", "F"}, {"g"}},
      {"INT", {"0", "007"}, {"-1", ""}},
      {"SIGNED_INT", {"+1", "-20", "3"}, {"+-1"}},
      {"DECIMAL", {"1.", "1.5", ".5"}, {"1", "."}},
      {"FLOAT", {"1e5", "1.5", "1.E-3", ".5"}, {"1", "e5"}},
      {"SIGNED_FLOAT", {"-1e5", "+1.5"}, {"-1"}},
      {"NUMBER", {"1", "1.5", "2e+9"}, {"-1"}},
      {"SIGNED_NUMBER", {"-1", "1.5"}, {"--1"}},
      {"ESCAPED_STRING",
       {"\"\"", "\"a b\"", "\"a\\\"b\"", "\"\\\\\""},
       {"\"a\"b\"", "\"\\\"", "\"a\nb\"", "a"}},
      {"LETTER", {"a", "Z"}, {"_"}},
      {"WORD", {"ab"}, {"a1"}},
      {"CNAME", {"_a1", "B"}, {"1a"}},
      {"WS", {" ", "\n\t "}, {"", "a"}},
      {"NEWLINE", {"\n", "\r\n\n"}, {"\r"}},
      {"SH_COMMENT", {"#", "# a"}, {"#\n"}},
  };
  for (const auto& [name, good, bad] : cases) {
    check_lark({{fmt::format("start: X\n%import common.{} -> X", name), good, bad},
                {fmt::format("%import common (LF, {0})\nstart: {0}", name), good, bad}});
  }
}

TEST_CASE("lark: ignored blanks stand between terminals, and where two would become one") {
  check_lark({
      {"start: \"let\" NAME \"=\" value\nvalue: NAME | \"[\" (value (\",\" value)*)? \"]\"\n"
       "NAME: /[a-z]+/\n%ignore /\\s+/",
       {"letx=y", "let x = y", "let x=[ a,b , [] ]", "let\n\tx = [y]"},
       {" let x=y", "let x=y ", "let x=a b", "let x y"}},
      // NAME NAME needs a blank, NAME "," does not.
      {"start: NAME NAME? (\",\" NAME)*\n%import common.CNAME -> NAME\n%import common.WS\n"
       "%ignore WS",
       {"a", "a b", "ab", "a,b", "a b ,c"},
       {"a  ", "a b c", "a,", ",a"}},
      {"start: NAME+\nNAME: /[a-z]/+\n%ignore \" \"", {"a", "a b", "ab cd e"}, {"a\tb"}},
      // A part that may be missing takes its blank with it.
      {"start: A? A\nA: /a+/\n%ignore \" \"", {"aa", "a a"}, {" a", "a "}},
      {"start: x A\nx: A |\nA: /a+/\n%ignore \" \"", {"a a"}, {}},
      // Comments are ignored by others, and not written.
      {"start: \"a\" \"b\"\n%ignore /#[^\\n]*/\n%ignore \" \"", {"ab", "a b"}, {"a#x\nb", "a# b"}},
      // No blank is written that the text before or after it would swallow.
      {"start: \"'\" /[^']*/ \"'\"\n%ignore \" \"", {"''", "'a b'"}, {"'a' ", " 'a'"}},
      {"start: \"x\" TEXT \";\"\nTEXT: /[a ]+/\n%ignore \" \"", {"xa;", "x a ;"}, {"x;"}},
  });
}

// A grammar that agents send: patches of files.
TEST_CASE("lark: a grammar of patches") {
  check_lark({{R"(start: begin_patch hunk+ end_patch
begin_patch: "*** Begin Patch" LF
end_patch: "*** End Patch" LF?

hunk: add_hunk | delete_hunk | update_hunk
add_hunk: "*** Add File: " filename LF add_line+
delete_hunk: "*** Delete File: " filename LF
update_hunk: "*** Update File: " filename LF change_move? change?

filename: /(.+)/
add_line: "+" /(.*)/ LF -> line

change_move: "*** Move to: " filename LF
change: (change_context | change_line)+ eof_line?
change_context: ("@@" | "@@ " /(.+)/) LF
change_line: ("+" | "-" | " ") /(.*)/ LF
eof_line: "*** End of File" LF

%import common.LF
)",
               {"*** Begin Patch\n*** Add File: a b.c\n+int x;\n+\n*** End Patch",
                "*** Begin Patch\n*** Delete File: a\n*** Update File: b\n@@ f\n-x\n+y\n \n"
                "*** End of File\n*** End Patch\n",
                "*** Begin Patch\n*** Update File: b\n*** Move to: c\n*** End Patch"},
               {"*** Begin Patch\n*** End Patch", "*** Begin Patch\n*** Add File: a\n*** End Patch",
                "*** Begin Patch\n*** Add File: \n+x\n*** End Patch",
                "*** Begin Patch\n*** Add File: a\nx\n*** End Patch"}}});
}

TEST_CASE("lark: what is not supported is refused by name, and what is wrong with its line") {
  const std::pair<const char*, const char*> refused[] = {
      {"start: \"a\"\n%declare X", "line 2: %declare"},
      {"start: \"a\"\n\n%override x: \"a\"", "line 3: %override"},
      {"start: \"a\"\n%import python.NAME", "python.NAME"},
      {"start: \"a\"\n%import .other.X", ".other.X"},
      {"start: X\n%import common.C_COMMENT -> X", "common.C_COMMENT"},
      {"start: pair{\"a\"}\npair{x}: x x", "the template 'pair'"},
      {"start: \"a\"\nx[capture]: \"b\"", "[ ] after 'x'"},
      {"start: <|x|>", "'<' here"},
      {"start: %json {}", "'%' here"},
      {"start: /a.*?b/", "a lazy quantifier"},
      {"start: /(?=a)b/", "this kind of group"},
      {"start: /^a/", "'^' here"},
      {"start: /a$/", "'$'"},
      {"start: /a\\b/", "\\b"},
      {"start: /a/i", "the flag i"},
      {"start: \"\xC3\xA4\"i", "not ASCII"},
      {"start: \"\\q\"", "the escape \\q"},
      {"start: WORD WORD\n%import common.WORD", "WORD right before WORD"},
      {"start: WORD+\n%import common.WORD", "WORD right before WORD"},
      {"start: x /a/\nx: /[a-c]+/", "/[a-c]+/ right before /a/"},
      {"start: TEXT \"b\"\nTEXT: /[a-c ]+/\n%ignore \" \"", "TEXT right before \"b\""},
      {"start: a\na: b \"x\"\nb: a |", "begins with itself"},
      {"start: start", "has no end"},
      {"start: nope", "no rule 'nope'"},
      {"start: NOPE", "no terminal 'NOPE'"},
      {"x: \"a\"", "no rule 'start'"},
      {"", "no rule 'start'"},
      {"start: \"a\"\nstart: \"b\"", "line 2: 'start' is defined twice"},
      {"start: A\nA: b\nb: \"b\"", "the rule 'b' stands in a terminal"},
      {"start: A\nA: B\nB: A", "contains itself"},
      {"start: \"a", "a string without its end"},
      {"start: \"\"", "a string without characters"},
      {"start: /a", "an expression without its end"},
      {"start: (\"a\"", "want )"},
      {"start: [\"a\")", "want ]"},
      {"start: \"a\")", "want the line's end"},
      {"start: \"a\"~3..2", "~ 3..2"},
      {"start: \"a\"~99999999", "want a number"},
      {"start: \"b\"..\"a\"", "in order"},
      {"start: \"ab\"..\"c\"", "in order"},
      {"start \"a\"", "want : after 'start'"},
      {"Start: \"a\"", "'Start'"},
      {"start: \"\\ud800\"", "a wrong number of a character"},
      {"start: \"a\"\n%ignore", "no rule 'x'"},
  };
  for (const auto& [lark, named] : refused) {
    INFO(lark);
    const auto met = compile_json_schema(schema_of(lark));
    if (std::string_view(lark).ends_with("%ignore")) continue;  // nothing is ignored
    REQUIRE_FALSE(met.ok());
    CHECK_MESSAGE(met.error().message.find(named) != std::string::npos, met.error().message);
    CHECK(met.error().field == "json_schema");
  }
  const auto both = compile_json_schema(R"({"type":"string","lark":"start: \"a\"","maxLength":3})");
  REQUIRE_FALSE(both.ok());
  CHECK(both.error().message.find("'maxLength' together with lark") != std::string::npos);
  CHECK_FALSE(compile_json_schema(R"({"type":"string","lark":7})").ok());
  std::vector<std::string> relaxed;
  CHECK(compile_json_schema(schema_of("start: /a*?/"), &relaxed).ok());
  CHECK(
      compile_json_schema(schema_of("start: x WORD\nx: WORD\n%import common.WORD"), &relaxed).ok());
  CHECK(relaxed == std::vector<std::string>{"this lark grammar"});
  CHECK_FALSE(compile_json_schema(schema_of("start: nope"), &relaxed).ok());
}

TEST_CASE("lark: hostile grammars end soon") {
  std::string deep = "start: ";
  for (int i = 0; i < 20'000; ++i) deep += '(';
  CHECK_FALSE(compile_json_schema(schema_of(deep)).ok());
  CHECK_FALSE(compile_json_schema(schema_of("start: " + std::string(200'000, ' ') + "\"a\"")).ok());
  std::string rules = "start: a0\n", terminals = "start: A0", long_chain = "start: T0\n";
  for (int i = 0; i < 3'000; ++i) {
    rules += fmt::format("a{}: a{} |\n", i, i + 1);
    terminals += fmt::format(" | \"{}\"", i);
  }
  for (int i = 0; i < 1'000; ++i) long_chain += fmt::format("T{}: T{} T{}\n", i, i + 1, i + 1);
  CHECK_FALSE(compile_json_schema(schema_of(rules + "a3000: \"a\"\n")).ok());
  CHECK_FALSE(compile_json_schema(schema_of(terminals + "\nA0: \"a\"\n")).ok());
  CHECK_FALSE(compile_json_schema(schema_of(long_chain + "T1000: \"a\"\n")).ok());
  std::string doubled = "start: T0\n";
  for (int i = 0; i < 40; ++i) doubled += fmt::format("T{}: T{} T{}\n", i, i + 1, i + 1);
  CHECK_FALSE(compile_json_schema(schema_of(doubled + "T40: \"a\"\n")).ok());
  const size_t half = doubled.find("T28");
  CHECK_FALSE(compile_json_schema(schema_of(doubled.substr(0, half) + "T28 \nT28: \"a\"\n")).ok());
  std::string large = "start:", optional = "start:";
  for (int i = 0; i < 500; ++i) {
    large += fmt::format(" | L{}\n", i);
    optional += fmt::format(" \"{}\"?", i);
  }
  for (int i = 0; i < 500; ++i) large += fmt::format("\nL{}: \"{}\"~9999 \"b\"~9999", i, i);
  CHECK_FALSE(compile_json_schema(schema_of(large)).ok());
  for (int i = 0; i < 12'000; ++i) optional += " \"0\"?";
  compile_json_schema(schema_of(optional + " \"1\"")).ok();
  CHECK(compile_json_schema(schema_of("start: (((\"a\"~9999)~9999)~9999)~9999")).ok());
  CHECK_FALSE(compile_json_schema(schema_of("start: /(a|b)*a(a|b){0,3000}/")).ok());
}

/// The terminals of a text, N for names, as a lexer cuts it that takes the longest.
std::string cut(const std::string& text) {
  std::string out;
  bool in_name = false;
  for (const char byte : text) {
    const bool letter = byte >= 'a' && byte <= 'c';
    if (letter && !in_name) out += 'N';
    if (!letter && byte != ' ') out += byte;
    in_name = letter;
  }
  return out;
}

TEST_CASE("lark: random texts are cut into the terminals that they were written as") {
  Constraint c = constraint_of(compile_json_schema(schema_of(
      "start: (NAME | pair | \",\")~1..4 end?\npair: \"(\" NAME NAME? \")\"\nend: NAME? \";\"\n"
      "NAME: /[a-c]+/\n%ignore \" \"")));
  const std::regex valid(R"((N|\(NN?\)|,){1,4}(N?;)?)");
  std::mt19937 random(9);
  for (int sample = 0; sample < 300; ++sample) {
    std::string text;
    int32_t state = c.advance_byte(Constraint::kStart, '"');
    while (true) {
      std::vector<char> ways;
      for (const char byte : {'a', 'b', ' ', '(', ')', ',', ';', '"'}) {
        if (c.advance_byte(state, static_cast<uint8_t>(byte)) != Constraint::kDead)
          ways.push_back(byte);
      }
      REQUIRE_FALSE(ways.empty());
      const char next = ways[random() % ways.size()];
      if (next == '"') break;
      text += next;
      state = c.advance_byte(state, static_cast<uint8_t>(next));
    }
    CAPTURE(text);
    CHECK(text.front() != ' ');
    CHECK(text.back() != ' ');
    CHECK(std::regex_match(cut(text), valid));
  }
}

}  // namespace
}  // namespace hearth::golden
