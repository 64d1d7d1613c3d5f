// Calls that a grammar enforces: random texts drawn under it are, read by the parser of their
// format, calls of the functions with arguments that are valid against their schemas.

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

/// All bytes, some texts of several bytes, and the symbols of control marks.
std::shared_ptr<const TokenTrie> vocabulary(size_t marks) {
  std::vector<std::string> texts = {
      "",        "{\"",      "\": ", "\", \"",  "<tool_call>", "}\n</tool_call>",
      "<think>", "</think>", "\n\n", "```json", "\"name\": \""};
  for (int b = 0; b < 256; ++b) texts.emplace_back(1, static_cast<char>(b));
  for (size_t i = 0; i < marks; ++i) texts.push_back(mark_symbol(i));
  const std::vector<std::string_view> pieces(texts.begin(), texts.end());
  return std::make_shared<TokenTrie>(pieces);
}

/// A random text that the constraint permits; nothing if it grows too long.
std::optional<std::string> random_text(Constraint& constraint, const TokenTrie& trie,
                                       std::mt19937& random) {
  std::string out;
  int32_t state = Constraint::kStart;
  for (int step = 0; step < 600; ++step) {
    const Constraint::Mask& mask = constraint.mask(state);
    if (constraint.accepts(state) && (mask.count == 0 || random() % 3 == 0)) return out;
    std::vector<int32_t> allowed;
    for (int32_t id = 0; id < trie.vocab_size(); ++id) {
      const auto at = static_cast<size_t>(id);
      if ((mask.bits[at / 64] >> (at % 64) & 1) != 0) allowed.push_back(id);
    }
    REQUIRE_FALSE(allowed.empty());
    // Longer texts are preferred: they are the marks.
    int32_t chosen = allowed[random() % allowed.size()];
    for (const int32_t id : allowed) {
      if (trie.piece(id).size() > 2 && random() % 4 == 0) chosen = id;
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

void check(const CallGrammar& wanted, std::mt19937& random, int times) {
  const auto compiled = compile_call_grammar(wanted);
  REQUIRE_MESSAGE(compiled.ok(), (compiled.ok() ? "" : compiled.error().message));
  const auto trie = vocabulary(wanted.control_marks.size());
  Constraint constraint(*compiled, trie);
  models::AnswerShape shape;
  shape.tools = wanted.format;
  shape.channels = wanted.format->style == models::CallStyle::kChannels;
  for (const CallableFunction& function : wanted.functions)
    shape.functions.push_back({function.name, string_parameters(function.schema)});
  shape.reasoning = wanted.reasoning;
  shape.reasoning_open = wanted.reasoning_open;
  int ended = 0;
  for (int i = 0; i < times; ++i) {
    const auto text = random_text(constraint, *trie, random);
    if (!text) continue;
    ++ended;
    const std::string answer = with_marks(*text, wanted.control_marks);
    INFO(answer);
    models::AnswerParser parser(shape);
    models::AnswerPieces pieces;
    parser.push(answer, &pieces);
    parser.finish(&pieces);
    int calls = 0;
    for (size_t at = 0; at < pieces.size(); ++at) {
      REQUIRE(pieces[at].type != AnswerPiece::Type::kText);
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
    CHECK(calls >= 1);
    if (wanted.one_call) CHECK(calls == 1);
  }
  CHECK(ended > times / 4);
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
