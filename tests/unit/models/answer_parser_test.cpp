// Answers of every format, split at every place: the pieces are the same.

#include "models/answer/answer_parser.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace hearth::models {
namespace {

using Type = AnswerPiece::Type;

void append(AnswerPieces* all, const AnswerPieces& more) {
  for (const AnswerPiece& piece : more) append_piece(all, piece.type, piece.text);
}

AnswerPieces read(const AnswerShape& shape, const std::vector<std::string_view>& parts) {
  AnswerParser parser(shape);
  AnswerPieces all;
  for (const std::string_view part : parts) {
    AnswerPieces pieces;
    parser.push(part, &pieces);
    append(&all, pieces);
  }
  AnswerPieces last;
  parser.finish(&last);
  append(&all, last);
  return all;
}

std::string shown(const AnswerPieces& pieces) {
  std::string out;
  for (const AnswerPiece& piece : pieces) {
    static constexpr const char* kNames[] = {"text", "reasoning", "call", "arguments"};
    out += std::string(kNames[static_cast<size_t>(piece.type)]) + "(" + piece.text + ") ";
  }
  return out;
}

void check(const AnswerShape& shape, const std::string& text, const AnswerPieces& want) {
  const AnswerPieces whole = read(shape, {text});
  CHECK_MESSAGE(whole == want, text << "\nmet " << shown(whole) << "\nwant " << shown(want));
  for (size_t at = 0; at <= text.size(); ++at) {
    const std::string_view all(text);
    const AnswerPieces cut = read(shape, {all.substr(0, at), all.substr(at)});
    CHECK_MESSAGE(cut == want, text << "\ncut at " << at << ": " << shown(cut));
  }
  std::vector<std::string_view> bytes;
  for (size_t i = 0; i < text.size(); ++i) bytes.push_back(std::string_view(text).substr(i, 1));
  CHECK_MESSAGE(read(shape, bytes) == want, text << "\nbyte by byte");
}

AnswerShape calls(const char* id) {
  AnswerShape shape;
  shape.tools = find_tool_format(id);
  REQUIRE_MESSAGE(shape.tools != nullptr, id);
  shape.channels = shape.tools->style == CallStyle::kChannels;
  shape.functions = {{"f"}, {"get_weather", {"city"}}};
  return shape;
}

AnswerPiece text(const char* t) { return {Type::kText, t}; }
AnswerPiece reasoning(const char* t) { return {Type::kReasoning, t}; }
AnswerPiece call(const char* t) { return {Type::kCall, t}; }
AnswerPiece arguments(const char* t) { return {Type::kArguments, t}; }

const std::string kDsBegin =
    "<\xEF\xBD\x9Ctool\xE2\x96\x81"
    "calls\xE2\x96\x81"
    "begin\xEF\xBD\x9C>";
const std::string kDsEnd =
    "<\xEF\xBD\x9Ctool\xE2\x96\x81"
    "calls\xE2\x96\x81"
    "end\xEF\xBD\x9C>";
const std::string kDsCall =
    "<\xEF\xBD\x9Ctool\xE2\x96\x81"
    "call\xE2\x96\x81"
    "begin\xEF\xBD\x9C>";
const std::string kDsCallEnd =
    "<\xEF\xBD\x9Ctool\xE2\x96\x81"
    "call\xE2\x96\x81"
    "end\xEF\xBD\x9C>";
const std::string kDsSep = "<\xEF\xBD\x9Ctool\xE2\x96\x81sep\xEF\xBD\x9C>";

TEST_CASE("calls between marks") {
  const AnswerShape shape = calls("hermes");
  check(shape, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>",
        {call("f"), arguments("{\"a\": 1}")});
  check(
      shape,
      "Let me see.\n<tool_call>{\"arguments\": {\"a\": \"}{\\\"\"}, \"name\": \"f\"}</tool_call>\n"
      "<tool_call>\n{\"name\":\"get_weather\",\"arguments\":{}}\n</tool_call>\n",
      {text("Let me see."), call("f"), arguments("{\"a\": \"}{\\\"\"}"), call("get_weather"),
       arguments("{}")});
  check(shape, "<tool_call>{\"name\":\"f\"}</tool_call> done",
        {call("f"), arguments("{}"), text("done")});
  check(shape, "  a < b <tool_cal \n", {text("  a < b <tool_cal \n")});
  check(shape, "<<tool_call>{\"name\":\"f\",\"x\":[1,{}],\"arguments\":{}}</tool_call>",
        {text("<"), call("f"), arguments("{}")});
  check(shape, "", {});
}

TEST_CASE("a call that a bound cuts short leaves no text of its opening") {
  const auto cut = [](AnswerShape shape, std::string_view text) {
    AnswerParser parser(shape);
    AnswerPieces out;
    parser.push(text, &out);
    parser.finish(&out, true);
    return out;
  };
  const AnswerShape hermes = calls("hermes"), bare = calls("llama");
  const std::string whole = "Yes.\n<tool_call>\n{\"name\": \"f\", \"arguments\": ";
  for (size_t at = whole.find("<tool") + 2; at < whole.size(); ++at) {
    CHECK_MESSAGE(cut(hermes, whole.substr(0, at)) == AnswerPieces{text("Yes.")},
                  whole.substr(0, at));
  }
  CHECK(cut(hermes, "a <") == AnswerPieces{text("a <")});
  CHECK(cut(hermes, whole + "{\"a\"") ==
        AnswerPieces{text("Yes."), call("f"), arguments("{\"a\"")});
  // Without marks it may be an answer, unless a call was demanded.
  CHECK(cut(bare, "{\"name\": \"Jo") == AnswerPieces{text("{\"name\": \"Jo")});
  AnswerShape forced = bare;
  forced.must_call = true;
  CHECK(cut(forced, "{\"name\": \"f").empty());
  AnswerShape channels;
  channels.tools = find_tool_format("harmony");
  channels.channels = true;
  channels.functions = {{"f"}};
  CHECK(cut(channels, "<|channel|>commentary to=functions.f").empty());
}

TEST_CASE("text that is not a call stays text, unchanged") {
  const AnswerShape shape = calls("hermes");
  for (const char* plain : {
           "<tool_call>\n{\"name\": \"other\", \"arguments\": {}}\n</tool_call>",
           "<tool_call> f() </tool_call>",
           "x <tool_call>{\"name\": 7}</tool_call>",
           "<tool_call>{\"arguments\": {}}</tool_call>",
           "<tool_call>{\"name\": \"f\", \"arguments\": \"{}\"}</tool_call>",
           "<tool_call>{\"name\": \"f\", \"name\": \"f\"}",
           "<tool_call>{\"name\": \"f",
           "<tool_call>{\"name\": \"f\", \"arguments\":",
           "\n\n<tool_call>",
           "{\"name\": \"f\", \"arguments\": {}}",
       }) {
    check(shape, plain, {text(plain)});
  }
  // After an invalid one, a valid one.
  check(shape, "<tool_call><tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>",
        {text("<tool_call>"), call("f"), arguments("{}")});
  // Once it was emitted it stays, and what follows is text.
  check(shape, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1]} x",
        {call("f"), arguments("{\"a\":1"), text("]} x")});
  check(shape,
        "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":", {call("f"), arguments("{\"a\":")});
  check(shape, "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_ca",
        {call("f"), arguments("{}")});
}

TEST_CASE("an answer that is the object itself") {
  const AnswerShape shape = calls("llama");
  check(shape, "\n{\"name\": \"f\", \"parameters\": {\"a\": [1, 2]}}",
        {call("f"), arguments("{\"a\": [1, 2]}")});
  check(
      shape,
      "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"f\", \"parameters\": {}}",
      {call("f"), arguments("{}"), call("f"), arguments("{}")});
  for (const char* plain :
       {"The answer is {\"name\": \"f\", \"parameters\": {}}", "  ", "{\"a\": 1}",
        "{\"name\": \"other\", \"parameters\": {}}", "<|python_tag|>print(1)", "<|python"}) {
    check(shape, plain, {text(plain)});
  }
}

TEST_CASE("lists of calls") {
  const AnswerShape mistral = calls("mistral");
  check(mistral,
        "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": 1}, \"id\": \"abcdefghi\"}, "
        "{\"name\": \"get_weather\", \"arguments\": {}}]",
        {call("f"), arguments("{\"a\": 1}"), call("get_weather"), arguments("{}")});
  check(mistral, "[TOOL_CALLS][]", {text("[TOOL_CALLS][]")});
  check(mistral, "Hm. [TOOL_CALLS][{\"name\": \"other\"}]",
        {text("Hm. [TOOL_CALLS][{\"name\": \"other\"}]")});
  const AnswerShape command = calls("command-r");
  check(command,
        "I will.\nAction:\n```json\n[\n    {\n        \"tool_name\": \"f\",\n        "
        "\"parameters\": {\n            \"a\": 1\n        }\n    }\n]```",
        {text("I will."), call("f"), arguments("{\n            \"a\": 1\n        }")});
  check(command, "Action: none", {text("Action: none")});
  check(calls("command-r7b"),
        "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"f\", \"parameters\": "
        "{}}\n]"
        "<|END_ACTION|>",
        {call("f"), arguments("{}")});
}

TEST_CASE("calls with their name outside of the JSON") {
  check(calls("mistral-named"), "[TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS]get_weather[ARGS]{}",
        {call("f"), arguments("{\"a\": 1}"), call("get_weather"), arguments("{}")});
  check(calls("mistral-named"), "[TOOL_CALLS]other[ARGS]{}", {text("[TOOL_CALLS]other[ARGS]{}")});
  check(calls("mistral-ids"), "[TOOL_CALLS]f[CALL_ID]a1b2c3d4e[ARGS]{\"a\": 1}",
        {call("f"), arguments("{\"a\": 1}")});
  check(calls("mistral-ids"), "[TOOL_CALLS]f[CALL_ID]a b[ARGS]{}",
        {text("[TOOL_CALLS]f[CALL_ID]a b[ARGS]{}")});
  check(calls("kimi"),
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>"
        "{\"a\": 1}<|tool_call_end|><|tool_calls_section_end|>",
        {call("f"), arguments("{\"a\": 1}")});
  check(calls("deepseek"),
        "Yes.\n" + kDsBegin + kDsCall + "function" + kDsSep + "f\n```json\n{\"a\": 1}\n```" +
            kDsCallEnd + "\n" + kDsCall + "function" + kDsSep + "f\n```json\n{}\n```" + kDsCallEnd +
            kDsEnd,
        {text("Yes."), call("f"), arguments("{\"a\": 1}"), call("f"), arguments("{}")});
  check(calls("deepseek-named"), kDsBegin + kDsCall + "f" + kDsSep + "{}" + kDsCallEnd + kDsEnd,
        {call("f"), arguments("{}")});
}

TEST_CASE("arguments between marks of their own") {
  const AnswerShape qwen = calls("qwen-coder");
  check(qwen,
        "So:\n<tool_call>\n<function=get_weather>\n<parameter=city>\n7\n</parameter>\n"
        "<parameter=days>\n7\n</parameter>\n</function>\n</tool_call>\nNow.",
        {text("So:"), call("get_weather"), arguments("{\"city\":\"7\",\"days\":7}"), text("Now.")});
  check(qwen,
        "<tool_call><function=f><parameter=a>\nif a < b:\n\t\"x\"\\\n\n</parameter></function>"
        "</tool_call><tool_call><function=f></function></tool_call>",
        {call("f"), arguments("{\"a\":\"if a < b:\\n\\t\\\"x\\\"\\\\\\n\"}"), call("f"),
         arguments("{}")});
  // What is not valid JSON is a string, unless the parameter is a string in any case.
  check(calls("seed"),
        "<seed:tool_call>\n<function=get_weather>\n<parameter=city>[1]</parameter>\n"
        "<parameter=days>[1, 2]</parameter>\n<parameter=x>one "
        "two</parameter><parameter=y>True</parameter>"
        "<parameter=z>[1, 'a \\'\\n\"', {'k': None}]</parameter><parameter=w>[1, "
        "'a</parameter>\n</function>\n"
        "</seed:tool_call>",
        {call("get_weather"),
         arguments("{\"city\":\"[1]\",\"days\":[1, 2],\"x\":\"one two\",\"y\":true,"
                   "\"z\":[1,\"a '\\n\\\"\",{\"k\":null}],\"w\":\"[1, 'a\"}")});
  check(calls("glm"),
        "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>{\"b\": null}</arg_value>\n</tool_call>"
        "<tool_call>get_weather<arg_key>city</arg_key><arg_value>P</a</arg_value></tool_call>",
        {call("f"), arguments("{\"a\":{\"b\": null}}"), call("get_weather"),
         arguments("{\"city\":\"P</a\"}")});
  check(calls("minimax"),
        "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"a\">true</parameter>\n"
        "</invoke>\n<invoke name=\"f\">\n</invoke>\n</minimax:tool_call>",
        {call("f"), arguments("{\"a\":true}"), call("f"), arguments("{}")});
  const std::string dsml =
      "\xEF\xBD\x9C"
      "DSML"
      "\xEF\xBD\x9C";
  check(calls("deepseek-tags"),
        "<" + dsml + "function_calls>\n<" + dsml + "invoke name=\"f\">\n<" + dsml +
            "parameter name=\"a\" string=\"true\">7</" + dsml + "parameter>\n<" + dsml +
            "parameter name=\"b\" string=\"false\">7</" + dsml + "parameter>\n</" + dsml +
            "invoke>\n</" + dsml + "function_calls>",
        {call("f"), arguments("{\"a\":\"7\",\"b\":7}")});
  // Not a call, or not offered: text.
  for (const char* plain :
       {"<tool_call>g<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>",
        "<tool_call>f and more", "<tool_call>f<arg_key>a</arg_key> x", "<tool_call>f<arg_ke"}) {
    check(calls("glm"), plain, {text(plain)});
  }
  // Once it was emitted it stays, with its object complete where only marks are missing.
  check(calls("glm"), "<tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value>",
        {call("f"), arguments("{\"a\":1}")});
  check(calls("glm"), "<tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value> and",
        {call("f"), arguments("{\"a\":1}"), text("and")});
  check(calls("glm"), "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Par",
        {call("get_weather"), arguments("{\"city\":\"Par")});
}

TEST_CASE("arguments with marks around their strings") {
  const AnswerShape gemma = calls("gemma");
  check(gemma,
        "<|tool_call>call:f{city:<|\"|>Par\"is\n<|\"|>,days:[1,-2.5,{a:true,b:None}],<|\"|>c "
        "d<|\"|>:{}}"
        "<tool_call|><|tool_call>call:get_weather{}<tool_call|>",
        {call("f"),
         arguments(
             "{\"city\":\"Par\\\"is\\n\",\"days\":[1,-2.5,{\"a\":true,\"b\":null}],\"c d\":{}}"),
         call("get_weather"), arguments("{}")});
  check(gemma, "<|tool_call>call:f{\"a\": \"x\", \"b\": [\"y}\"]}<tool_call|>",
        {call("f"), arguments("{\"a\":\"x\",\"b\":[\"y}\"]}")});
  for (const char* plain : {"<|tool_call>call:g{}<tool_call|>", "<|tool_call>f{}<tool_call|>",
                            "<|tool_call>call:f[]<tool_call|>"}) {
    check(gemma, plain, {text(plain)});
  }
  check(gemma, "<|tool_call>call:f{a:x}", {call("f"), arguments("{\"a\":"), text("x}")});
}

TEST_CASE("messages in channels") {
  const AnswerShape shape = calls("harmony");
  check(shape,
        "<|channel|>analysis<|message|>They ask.\n<|end|><|start|>assistant<|channel|>commentary "
        "to=functions.f <|constrain|>json<|message|>{\"a\": 1}<|call|>",
        {reasoning("They ask.\n"), call("f"), arguments("{\"a\": 1}")});
  check(shape,
        "<|channel|>analysis<|message|>Hm<|end|><|start|>assistant<|channel|>final<|message|>A < b",
        {reasoning("Hm"), text("A < b")});
  check(shape, " to=functions.f<|channel|>commentary json<|message|>{}",
        {call("f"), arguments("{}")});
  check(shape, "<|channel|>commentary to=functions.other<|message|>{}", {text("{}")});
  check(shape, "Just text", {text("Just text")});
  check(shape, "<|channel|>final", {text("<|channel|>final")});
}

TEST_CASE("leading reasoning is separated") {
  AnswerShape shape;
  shape.reasoning = {"<think>", "</think>"};
  check(shape, "<think>\nOne.\n\nTwo.\n</think>\n\nYes.\n",
        {reasoning("One.\n\nTwo."), text("Yes.\n")});
  check(shape, "<think></think>Yes", {text("Yes")});
  check(shape, "No <think>x</think>", {text("No <think>x</think>")});
  check(shape, "\n <think>x</thin", {reasoning("x</thin")});
  check(shape, " <thin", {text(" <thin")});
  check(shape, "</think>a", {text("</think>a")});
  shape.reasoning_open = true;
  check(shape, "\nHm </thi</think>\n\nYes", {reasoning("Hm </thi"), text("Yes")});
  check(shape, "Hm\n", {reasoning("Hm\n")});
  AnswerShape both = calls("hermes");
  both.reasoning = shape.reasoning;
  both.reasoning_open = true;
  check(both, "a <tool_call> b</think>\n\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>",
        {reasoning("a <tool_call> b"), call("f"), arguments("{}")});
}

TEST_CASE("an answer of one call ends with it") {
  AnswerShape shape = calls("hermes");
  shape.one_call = true;
  check(shape,
        "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call><tool_call>{\"name\":\"f\"}</"
        "tool_call>x",
        {call("f"), arguments("{}")});
  AnswerParser parser(shape);
  AnswerPieces pieces;
  parser.push("<tool_call>{\"name\":\"f\",\"arguments\":{}", &pieces);
  CHECK_FALSE(parser.ended());
  parser.push("}", &pieces);
  CHECK(parser.ended());
}

TEST_CASE("names of functions have a fixed form") {
  CHECK(is_function_name("get_weather.v2-x"));
  for (const char* bad : {"", "a b", "auto", "none", "required", "a\"", "\xC3\xA9"}) {
    CHECK_FALSE(is_function_name(bad));
  }
  CHECK_FALSE(is_function_name(std::string(65, 'a')));
}

}  // namespace
}  // namespace hearth::models
