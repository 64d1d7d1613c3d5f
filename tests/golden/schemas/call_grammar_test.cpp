// Calls that a grammar enforces: random texts drawn under it are, read by the parser of their
// format, calls of the functions with arguments that are valid against their schemas, alone or
// among text.

#include "engine/grammar/call_grammar.h"

#include <doctest/doctest.h>

#include <random>

#include "engine/grammar/constraint.h"
#include "models/answer/answer_parser.h"
#include "tests/golden/schemas/schema_check.h"
#include "tests/skip.h"

namespace hearth::golden {
namespace {

using namespace engine;
using models::AnswerPiece;
using nlohmann::json;

const std::vector<CallableFunction>& functions() {
  static const std::vector<CallableFunction> all = {
      {"get_weather",
       R"({"type":"object","properties":{"city":{"type":"string","maxLength":6},)"
       R"("days":{"type":"integer","minimum":1,"maximum":14}},"required":["city"]})"},
      {"f", R"({"type":"object","properties":{},"additionalProperties":false})"},
      {"pick", R"({"type":"object","properties":{"of":{"enum":["a","b"]}},"required":["of"]})"}};
  return all;
}

/// The text with control marks as their symbols.
std::string with_symbols(std::string_view text, const std::vector<std::string>& marks) {
  std::string out;
  while (!text.empty()) {
    size_t bytes = 1;
    std::string unit(1, text.front());
    for (size_t i = 0; i < marks.size(); ++i) {
      if (!text.starts_with(marks[i])) continue;
      unit = mark_symbol(i);
      bytes = marks[i].size();
      break;
    }
    out += unit;
    text.remove_prefix(bytes);
  }
  return out;
}

/// All bytes, some texts of several bytes, what opens a call, and the symbols of control marks.
std::shared_ptr<const TokenTrie> vocabulary(const CallGrammar& wanted) {
  std::vector<std::string> texts = {
      "",        "{\"",      "\": ", "\", \"",  "<tool_call>", "}\n</tool_call>",
      "<think>", "</think>", "\n\n", "```json", "\"name\": \""};
  for (int b = 0; b < 256; ++b) texts.emplace_back(1, static_cast<char>(b));
  for (size_t i = 0; i < wanted.control_marks.size(); ++i) texts.push_back(mark_symbol(i));
  const models::ToolFormat& format = *wanted.format;
  for (const std::string_view text : {format.open, format.written.after, format.written.last}) {
    texts.emplace_back(text);
  }
  if (!format.around.empty()) texts.emplace_back(format.around[0]);
  const std::string opening =
      std::string(format.written.first) + std::string(format.written.before_name);
  texts.push_back(opening);
  texts.push_back(with_symbols(opening, wanted.control_marks));
  const std::vector<std::string_view> pieces(texts.begin(), texts.end());
  return std::make_shared<TokenTrie>(pieces);
}

/// A random text that the constraint permits; nothing if it grows too long. `going_on`: it ends at
/// one in so many places where it may.
std::optional<std::string> random_text(Constraint& constraint, const TokenTrie& trie,
                                       std::mt19937& random, uint32_t going_on) {
  std::string out;
  int32_t state = Constraint::kStart;
  for (int step = 0; step < 3000; ++step) {
    const Constraint::Mask& mask = constraint.mask(state);
    if (constraint.accepts(state) && (mask.count == 0 || random() % going_on == 0)) return out;
    std::vector<int32_t> allowed;
    for (int32_t id = 0; id < trie.vocab_size(); ++id) {
      const auto at = static_cast<size_t>(id);
      if ((mask.bits[at / 64] >> (at % 64) & 1) != 0) allowed.push_back(id);
    }
    REQUIRE_FALSE(allowed.empty());
    // Longer texts are preferred: they are the marks.
    int32_t chosen = allowed[random() % allowed.size()];
    for (const int32_t id : allowed) {
      if ((trie.piece(id).size() > 2 || trie.piece(id)[0] == '\xFF') && random() % 4 == 0)
        chosen = id;
    }
    out += trie.piece(chosen);
    state = constraint.advance(state, chosen);
  }
  return std::nullopt;
}

/// Replaces the symbols by the marks that they stand for.
std::string with_marks(const std::string& text, const std::vector<std::string>& marks) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\xFF') {
      out += marks.at(static_cast<size_t>(static_cast<unsigned char>(text[++i])) - 1);
    } else {
      out += text[i];
    }
  }
  return out;
}

/// Whether the text is one of the grammar's, with marks as their symbols.
bool allows(const CallGrammar& wanted, std::string_view text) {
  const auto compiled = compile_call_grammar(wanted);
  REQUIRE_MESSAGE(compiled.ok(), (compiled.ok() ? "" : compiled.error().message));
  Constraint constraint(*compiled, vocabulary(wanted));
  int32_t state = Constraint::kStart;
  for (const char c : with_symbols(text, wanted.control_marks)) {
    if (state != Constraint::kDead) state = constraint.advance_byte(state, static_cast<uint8_t>(c));
  }
  return state != Constraint::kDead && constraint.accepts(state);
}

void check(const CallGrammar& wanted, std::mt19937& random, int times) {
  const auto compiled = compile_call_grammar(wanted);
  REQUIRE_MESSAGE(compiled.ok(), (compiled.ok() ? "" : compiled.error().message));
  const auto trie = vocabulary(wanted);
  Constraint constraint(*compiled, trie);
  models::AnswerShape shape;
  shape.tools = wanted.format;
  shape.channels = wanted.format->style == models::CallStyle::kChannels;
  for (const CallableFunction& function : wanted.functions)
    shape.functions.push_back({function.name, string_parameters(function.schema)});
  shape.reasoning = wanted.reasoning;
  shape.reasoning_open = wanted.reasoning_open;
  int ended = 0, called = 0, plain = 0;
  for (int i = 0; i < times; ++i) {
    const auto text = random_text(constraint, *trie, random, wanted.among_text ? 20 : 3);
    if (!text) continue;
    ++ended;
    const std::string answer = with_marks(*text, wanted.control_marks);
    INFO(answer);
    models::AnswerParser parser(shape);
    models::AnswerPieces pieces;
    parser.push(answer, &pieces);
    parser.finish(&pieces);
    int calls = 0;
    std::string spoken;
    for (size_t at = 0; at < pieces.size(); ++at) {
      if (pieces[at].type == AnswerPiece::Type::kText) spoken += pieces[at].text;
      if (pieces[at].type != AnswerPiece::Type::kCall) continue;
      ++calls;
      REQUIRE(at + 1 < pieces.size());
      REQUIRE(pieces[at + 1].type == AnswerPiece::Type::kArguments);
      for (const CallableFunction& function : wanted.functions) {
        if (function.name != pieces[at].text) continue;
        CHECK_MESSAGE(is_valid_against(json::parse(function.schema), pieces[at + 1].text),
                      pieces[at + 1].text);
      }
    }
    called += calls;
    if (!wanted.answer_schema.empty() && calls == 0) {
      CHECK_MESSAGE(is_valid_against(json::parse(wanted.answer_schema), spoken), spoken);
      ++plain;
    } else if (!wanted.among_text) {
      CHECK(calls >= 1);
      CHECK(spoken.empty());
    }
    if (wanted.one_call) CHECK(calls <= 1);
  }
  CHECK(ended > times / 4);
  CHECK(called > 0);
  CHECK((plain > 0) == !wanted.answer_schema.empty());
}

TEST_CASE("enforced tool calls are valid calls, in every format") {
  std::mt19937 random(3);
  const int times = tests::full_counts() ? 400 : 25;
  for (const models::ToolFormat& format : models::tool_formats()) {
    INFO(format.id);
    CallGrammar wanted;
    wanted.format = &format;
    wanted.functions = functions();
    check(wanted, random, times);
    // The marks as control tokens, leading reasoning, one function, one call.
    for (const std::string_view mark : format.marks) wanted.control_marks.emplace_back(mark);
    wanted.functions.erase(wanted.functions.begin());
    wanted.one_call = true;
    wanted.reasoning = {"<think>", "</think>"};
    wanted.reasoning_open = true;
    if (format.style != models::CallStyle::kChannels) check(wanted, random, times);
    wanted.reasoning_open = false;
    check(wanted, random, times);
  }
}

TEST_CASE("an answer is valid calls, or follows its schema, in every format") {
  std::mt19937 random(11);
  const int times = tests::full_counts() ? 400 : 40;
  for (const models::ToolFormat& format : models::tool_formats()) {
    INFO(format.id);
    CallGrammar wanted;
    wanted.format = &format;
    wanted.functions = functions();
    wanted.answer_schema =
        R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"enum":["x","y"]}},)"
        R"("required":["a","b"],"additionalProperties":false})";
    check(wanted, random, times);
    for (const std::string_view mark : format.marks) wanted.control_marks.emplace_back(mark);
    wanted.one_call = true;
    if (format.style != models::CallStyle::kChannels) wanted.reasoning = {"<think>", "</think>"};
    check(wanted, random, times);
  }
  // Its faults are its own, and functions that are not strict may lose more than it.
  CallGrammar wanted;
  wanted.format = models::find_tool_format("hermes");
  wanted.functions = {{"f", R"({"type":"object","properties":{"a":{"not":{}}}})"}};
  wanted.answer_schema = R"({"type":"object","properties":{"b":{"not":{}}}})";
  std::vector<std::string> relaxed;
  const auto refused = compile_call_grammar(wanted, &relaxed);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().field == "json_schema");
  wanted.relax_answer = true;
  CHECK(compile_call_grammar(wanted, &relaxed).ok());
}

TEST_CASE("calls among text are valid calls, in every format") {
  std::mt19937 random(5);
  const int times = tests::full_counts() ? 400 : 40;
  for (const models::ToolFormat& format : models::tool_formats()) {
    INFO(format.id);
    CallGrammar wanted;
    wanted.format = &format;
    wanted.functions = functions();
    wanted.among_text = true;
    check(wanted, random, times);
    for (const std::string_view mark : format.marks) wanted.control_marks.emplace_back(mark);
    check(wanted, random, times);
    if (format.style == models::CallStyle::kChannels) continue;
    wanted.reasoning = {"<think>", "</think>"};
    wanted.one_call = true;
    check(wanted, random, times);
    wanted.reasoning_open = true;
    check(wanted, random, times);
  }
}

TEST_CASE("any text may stand around calls, and what opens one begins a valid one") {
  for (const bool control : {false, true}) {
    for (const models::ToolFormat& format : models::tool_formats()) {
      INFO(format.id);
      if (format.style == models::CallStyle::kChannels) continue;
      CallGrammar wanted;
      wanted.format = &format;
      wanted.functions = functions();
      wanted.among_text = true;
      if (control) {
        for (const std::string_view mark : format.marks) wanted.control_marks.emplace_back(mark);
      }
      const auto& form = format.written;
      const std::string before = std::string(form.first) + std::string(form.before_name);
      const std::string after = std::string(form.after) + std::string(form.last);
      const std::string call = before + "f" + std::string(form.between) +
                               (format.style == models::CallStyle::kTagged ? "" : "{}") + after;
      for (const char* text :
           {"", "plain", "a < b {\"name\": 1}\n", "\xE2\x82", "\x80\xC3 <tool"}) {
        CHECK_MESSAGE(allows(wanted, text), text);
      }
      CHECK_MESSAGE(allows(wanted, call), call);
      CHECK_FALSE(allows(wanted, before + "g" + std::string(form.between) + "{}" + after));
      CHECK_FALSE(allows(wanted, before));
      if (format.bare) {
        CHECK_FALSE(allows(wanted, "{\"a\": 1}"));
        CHECK(allows(wanted, call + "; " + call));
        continue;
      }
      CHECK(allows(wanted, "Let me see.\n" + call + "\nSo."));
      CHECK(allows(wanted, "a" + call + "\n" + call));
      CHECK_FALSE(allows(wanted, "a" + std::string(format.open) + " b"));
      if (control) {
        // What opens a call, spelled out in plain text.
        const auto compiled = compile_call_grammar(wanted);
        Constraint constraint(*compiled, vocabulary(wanted));
        int32_t state = Constraint::kStart;
        for (const char c : format.open) {
          if (state != Constraint::kDead) {
            state = constraint.advance_byte(state, static_cast<uint8_t>(c));
          }
        }
        CHECK((state == Constraint::kDead) == !format.list_begin.starts_with("```"));
      }
      wanted.one_call = true;
      CHECK(allows(wanted, "Let me see.\n" + call));
      CHECK_FALSE(allows(wanted, call + "\n" + call));
      wanted.reasoning = {"<think>", "</think>"};
      const std::string opened = std::string(format.open) + " is what opens it";
      CHECK(allows(wanted, "<think>" + opened + "</think>\n\n" + call));
      CHECK(allows(wanted, "<think>" + opened));
      CHECK_FALSE(allows(wanted, "<think>a</think>" + opened));
      wanted.reasoning_open = true;
      CHECK(allows(wanted, opened + "</think>" + call));
      CHECK_FALSE(allows(wanted, "</think>" + opened));
    }
  }
}

TEST_CASE("blanks and identifiers of calls may differ between models of one form") {
  CallGrammar wanted;
  wanted.functions = functions();
  wanted.among_text = true;
  wanted.format = models::find_tool_format("hermes");
  CHECK(allows(wanted, "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>"));
  CHECK(allows(
      wanted, "<tool_call>\n\n{\"name\": \"pick\", \"arguments\": {\"of\": \"a\"}}\n</tool_call>"));
  CHECK_FALSE(allows(
      wanted, "<tool_call>\n{\"name\": \"pick\", \"arguments\": {\"of\": \"c\"}}\n</tool_call>"));
  wanted.format = models::find_tool_format("kimi");
  CHECK(allows(wanted,
               "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:7"
               "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>"));
  wanted.format = models::find_tool_format("glm");
  CHECK(allows(wanted,
               "<tool_call>pick\n<arg_key>of</arg_key>\n<arg_value>a</arg_value>\n</tool_call>"));
  wanted.format = models::find_tool_format("harmony");
  const std::string thought = "<|channel|>analysis<|message|>Hm<|end|><|start|>assistant";
  CHECK(allows(wanted, thought + "<|channel|>final<|message|>Hello"));
  CHECK(allows(wanted, thought + "<|channel|>commentary to=functions.f json<|message|>{}"));
  CHECK(allows(wanted, "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}"));
  CHECK_FALSE(allows(wanted, "<|channel|>commentary to=functions.g<|message|>{}"));
  CHECK_FALSE(allows(wanted, "<|channel|>commentary to=functions.f<|message|>{\"a\":1}"));
}

TEST_CASE("strict functions lose nothing of their schema, others may") {
  CallGrammar wanted;
  wanted.format = models::find_tool_format("hermes");
  wanted.among_text = true;
  wanted.functions = {{"f", R"({"type":"object","properties":{"a":{"type":"boolean","not":{}}}})"}};
  std::vector<std::string> relaxed;
  REQUIRE(compile_call_grammar(wanted, &relaxed).ok());
  CHECK(relaxed == std::vector<std::string>{"the keyword 'not'"});
  wanted.functions[0].strict = true;
  CHECK_FALSE(compile_call_grammar(wanted, &relaxed).ok());
}

TEST_CASE("arguments are objects, whatever else their schema allows") {
  CallGrammar wanted;
  wanted.format = models::find_tool_format("hermes");
  const auto text = [](const std::string& arguments) {
    return "<tool_call>\n{\"name\": \"f\", \"arguments\": " + arguments + "}\n</tool_call>";
  };
  for (const char* schema :
       {R"({"title":"any"})", R"({"type":["null","object"]})", R"({"enum":[1,{"a":1}]})",
        R"({"anyOf":[{"type":"string"},{"$ref":"#/$defs/a"}],"$defs":{"a":true}})"}) {
    INFO(schema);
    wanted.functions = {{"f", schema}};
    CHECK(allows(wanted, text(R"({"a":1})")));
    for (const char* other : {"1", "\"a\"", "null", "[]"}) CHECK_FALSE(allows(wanted, text(other)));
  }
  wanted.functions = {{"f", R"({"type":["array","null"]})"}};
  const auto refused = compile_call_grammar(wanted);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().field == "tools");
  CHECK(refused.error().message == "tools: parameters of f: want a schema of objects");
  wanted.functions = {{"f", R"({"$ref":"#"})"}};
  CHECK_FALSE(compile_call_grammar(wanted).ok());
}

TEST_CASE("an unsupported schema is refused with the function's name") {
  CallGrammar wanted;
  wanted.format = models::find_tool_format("hermes");
  wanted.functions = {{"f", R"({"type":"object","properties":{"a":{"not":{}}}})"}};
  const auto refused = compile_call_grammar(wanted);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().field == "tools");
  CHECK(refused.error().code == ErrorCode::kUnsupported);
  CHECK(refused.error().message.find("parameters of f") != std::string::npos);
}

}  // namespace
}  // namespace hearth::golden
