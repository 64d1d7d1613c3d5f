// Anthropic's API as its clients use it: what agents send with each request, and volatile lines.

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "daemon/http/answers/api_answer.h"
#include "daemon/http/requests/api_embeddings.h"
#include "daemon/http/requests/api_request.h"
#include "daemon/http/requests/field_lists.h"
#include "daemon/http/requests/token_request.h"
#include "daemon/http/requests/volatile_lines.h"
#include "tests/sse_events.h"

namespace hearth::http {
namespace {

using Json = nlohmann::json;  // without an order of members

Call parsed(const std::string& body, const PromptRules& rules = {}) {
  Result<Call> call = parse_call(Api::kMessages, body, rules);
  REQUIRE_MESSAGE(call.ok(), body << "\n" << (call.ok() ? "" : call.error().message));
  return std::move(call).value();
}
Error refused_for(const std::string& body) {
  Result<Call> call = parse_call(Api::kMessages, body);
  REQUIRE_FALSE_MESSAGE(call.ok(), body);
  return call.take_error();
}
std::string with(const std::string& members) {
  return R"({"max_tokens":9,"messages":[{"role":"user","content":"a"}],)" + members + "}";
}

// The members that a coding agent sends, with short texts.
const std::string kAgent = R"({"model":"m","max_tokens":32000,"stream":true,"temperature":1,
  "metadata":{"user_id":"user_0_session_1"},
  "system":[
    {"type":"text","text":"x-anthropic-billing-header: cc_version=2.1.0; cch=1a2b3;"},
    {"type":"text","text":"You write code.","cache_control":{"type":"ephemeral"}},
    {"type":"text","text":"\nBe brief.","cache_control":{"type":"ephemeral","ttl":"1h",
     "scope":"global"}}],
  "thinking":{"type":"adaptive","display":"omitted"},
  "output_config":{"effort":"medium","task_budget":{"type":"tokens","total":9}},
  "context_management":{"edits":[{"type":"clear_thinking_20251015","keep":"all"}]},
  "diagnostics":{"previous_message_id":null},"speed":"standard","inference_geo":"eu",
  "tool_choice":{"type":"auto"},
  "tools":[{"name":"Read","description":"d","type":"custom","strict":false,
    "input_schema":{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object",
      "properties":{"path":{"type":"string"}},"required":["path"],"additionalProperties":false},
    "input_examples":[{"path":"/a"}],"eager_input_streaming":true,"defer_loading":false,
    "allowed_callers":["direct"]},
   {"name":"Bash","description":"d","input_schema":{"type":"object"},
    "eager_input_streaming":true,"cache_control":{"type":"ephemeral"}}],
  "messages":[
    {"role":"user","content":[{"type":"text","text":"Read a."}]},
    {"role":"assistant","content":[{"type":"thinking","thinking":"Hm","signature":"s"},
      {"type":"tool_use","id":"t1","name":"Read","input":{"path":"/a"},
       "caller":{"type":"direct"}}]},
    {"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","is_error":true,
      "content":[{"type":"text","text":"gone","cache_control":{"type":"ephemeral"}}]}]},
    {"role":"system","content":"The user is away."},
    {"role":"user","content":[{"type":"text","text":"And now?"}]}]})";

TEST_CASE("a coding agent's request is understood, and what has no effect is named") {
  const Call call = parsed(kAgent);
  CHECK(call.ignored == std::vector<std::string_view>{
                            "cache_control.scope", "thinking.signature", "tool_result.is_error",
                            "tools.input_examples", "tools.eager_input_streaming",
                            "output_config.task_budget", "context_management.edits", "metadata",
                            "diagnostics", "inference_geo", "speed", "thinking.display"});
  const Json messages = Json::parse(call.request.messages.text);
  REQUIRE(messages.size() == 6);
  CHECK(messages[0]["content"].get<std::string>().ends_with("You write code.\nBe brief."));
  CHECK(messages[0]["cache_keep_s"] == 3600);
  CHECK(messages[3] == Json::parse(R"({"role":"tool","tool_call_id":"t1","content":"gone",
                                       "cache_keep_s":300})"));
  CHECK(messages[4] == Json::parse(R"({"role":"system","content":"The user is away."})"));
  CHECK(Json::parse(call.request.tools.text)[1]["cache_keep_s"] == 300);
  CHECK(call.request.reasoning == "auto");
  CHECK(Json::parse(call.request.template_kwargs.text)["reasoning_effort"] == "medium");
  CHECK(call.volatile_lines == 0);
  // Each of the names is documented.
  for (const std::string_view name : call.ignored) {
    const bool nested = std::ranges::count(nested_fields(), name, &NestedField::name) == 1;
    const bool plain = std::ranges::count(ignored_fields(), name, &IgnoredField::name) == 1;
    CHECK_MESSAGE((nested || plain), name);
  }
}

TEST_CASE("counting a coding agent's request takes it as it is") {
  const Result<TokenCall> count = parse_count_tokens(kAgent);
  REQUIRE(count.ok());
  const Call call = parsed(kAgent);
  CHECK(count->request.messages == call.request.messages);
  CHECK(count->request.tools == call.request.tools);
  CHECK(count->request.template_kwargs == call.request.template_kwargs);
}

TEST_CASE("the output's format is a schema, under both of its names") {
  const std::string format = R"({"type":"json_schema","schema":{"type":"boolean"}})";
  CHECK(parsed(with("\"output_config\":{\"format\":" + format + "}")).request.json_schema ==
        R"({"type":"boolean"})");
  CHECK(parsed(with("\"output_format\":" + format)).request.json_schema == R"({"type":"boolean"})");
  CHECK(refused_for(
            with("\"output_format\":" + format + ",\"output_config\":{\"format\":" + format + "}"))
            .field == "output_config.format.type");
  CHECK(refused_for(with(R"("output_config":{"format":{"type":"xml"}})")).field ==
        "output_config.format.type");
  CHECK(refused_for(with(R"("output_config":{"effort":"huge"})")).field == "output_config.effort");
  CHECK(refused_for(with(R"("output_config":{"depth":1})")).field == "output_config.depth");
  CHECK(refused_for(with(R"("output_config":7)")).field == "output_config");
  // An effort concerns the whole answer: it does not contradict reasoning that is off.
  CHECK(parsed(with(R"("thinking":{"type":"disabled"},"output_config":{"effort":"high"})"))
            .request.reasoning == "off");
}

TEST_CASE("what would run on another server is refused by name") {
  const Error search = refused_for(
      with(R"("tools":[{"type":"web_search_20250305","name":"web_search","max_uses":5}])"));
  CHECK(search.field == "tools[0].type");
  CHECK(search.message.find("web_search_20250305") != std::string::npos);
  CHECK(search.code == ErrorCode::kUnsupported);
  const auto tool = [](const std::string& members) {
    return refused_for(with(R"("tools":[{"name":"f","input_schema":{},)" + members + "}]")).field;
  };
  CHECK(tool(R"("defer_loading":true)") == "tools[0].defer_loading");
  CHECK(tool(R"("allowed_callers":["code_execution_20250825"])") == "tools[0].allowed_callers");
  CHECK(tool(R"("input_examples":{})") == "tools[0].input_examples");
  CHECK(tool(R"("strict":"yes")") == "tools[0].strict");
  CHECK(refused_for(with(R"("mcp_servers":[{"type":"url"}])")).field == "mcp_servers");
  CHECK(refused_for(with(R"("container":"c")")).field == "container");
  CHECK(refused_for(with(R"("context_management":{"edits":[{"type":"clear_tool_uses_20250919"}]})"))
            .field == "context_management.edits[0]");
  CHECK(refused_for(with(R"("context_management":{"edits":[7]})")).field ==
        "context_management.edits[0]");
  CHECK(refused_for(with(R"("thinking":{"type":"between_tools"})")).field == "thinking.type");
  CHECK(refused_for(with(R"("cache_control":{"type":"ephemeral","ttl":"forever"})")).field ==
        "cache_control.ttl");
}

TEST_CASE("errors have the request's id in their body") {
  const Json error = Json::parse(error_body(Api::kMessages, 400, Error::invalid("m", "f"), "a-1"));
  CHECK(error["request_id"] == "a-1");
  CHECK(error["error"]["type"] == "invalid_request_error");
  CHECK_FALSE(Json::parse(error_body(Api::kChat, 400, Error::invalid("m", "f"), "a-1"))
                  .contains("request_id"));
  const auto writer = make_answer_writer(parsed(with("\"stream\":true")), "a-2", 5);
  std::string out;
  writer->started({"m", 2, 0, 0}, &out);
  writer->failed(Error::deadline("late"), &out);
  CHECK(tests::sse_events(out).back()["request_id"] == "a-2");
}

TEST_CASE("patterns of lines") {
  CHECK(matches_line("x: *", "x: 1"));
  CHECK(matches_line("x: *", "x: "));
  CHECK_FALSE(matches_line("x: *", " x: 1"));
  CHECK_FALSE(matches_line("x: *", "x:1"));
  CHECK(matches_line("*a*b", "xxaxxabxb"));
  CHECK_FALSE(matches_line("*a*b", "xxaxxabxbc"));
  CHECK(matches_line("abcd", "abcd"));
  CHECK_FALSE(matches_line("abcd", "abcde"));
  CHECK(matches_line(std::string(40, '*') + "b", std::string(20'000, 'a') + "b"));
  CHECK(is_line_pattern("x: *a"));
  CHECK_FALSE(is_line_pattern("*"));
  CHECK_FALSE(is_line_pattern("*a*b*c*"));
  CHECK_FALSE(is_line_pattern("abc\ndef"));
}

TEST_CASE("volatile lines of the system prompt are left out where the operator allows it") {
  const PromptRules rules{.volatile_lines = {"x-anthropic-billing-header: *"}};
  const Call call = parsed(kAgent, rules);
  CHECK(call.volatile_lines == 1);
  CHECK(Json::parse(call.request.messages.text)[0] ==
        Json::parse(R"({"role":"system","content":"You write code.\nBe brief.",
                        "cache_keep_s":3600})"));
  // The next request's line is another, and its prompt the same.
  std::string next = kAgent;
  next.replace(next.find("1a2b3"), 5, "9z8y7");
  CHECK(parsed(next, rules).request == call.request);
  CHECK(parse_count_tokens(next, rules)->request.messages == call.request.messages);
  CHECK(parse_count_tokens(next, rules)->volatile_lines == 1);

  const std::string line = R"(x-anthropic-billing-header: 1)";
  const auto system_of = [&](const std::string& text) {
    const Call made = parsed(with("\"system\":" + Json(text).dump()), rules);
    return Json::parse(made.request.messages.text)[0]["content"].get<std::string>();
  };
  CHECK(system_of(line + "\r\nA\n" + line + "\nB") == "A\nB");
  CHECK(system_of("A\n" + line) == "A\n");
  CHECK(system_of("A " + line) == "A " + line);  // within a line it is text
  std::string many;
  for (int i = 0; i < 20; ++i) many += line + "\n";
  CHECK(system_of(many + "A") == line + "\n" + line + "\n" + line + "\n" + line + "\nA");
  // Words of users are never touched.
  const Call user =
      parsed(R"({"max_tokens":9,"messages":[{"role":"user","content":")" + line + "\"}]}", rules);
  CHECK(Json::parse(user.request.messages.text)[0]["content"] == line);
  // What is not a text is refused as without the rule.
  CHECK(parse_call(Api::kMessages, with(R"("system":[7,{"text":{}}])"), rules).error().field ==
        "system[0]");
}

TEST_CASE("volatile lines in the other APIs") {
  const PromptRules rules{.volatile_lines = {"now: *"}};
  const Call chat = parse_call(Api::kChat, R"({"messages":[
      {"role":"developer","content":[{"type":"text","text":"now: 1\nA"}]},
      {"role":"system","content":"now: 2"},{"role":"user","content":"now: 3"},
      {"role":"system","content":"now: 4"}]})",
                               rules)
                        .value();
  CHECK(chat.volatile_lines == 2);
  const Json messages = Json::parse(chat.request.messages.text);
  CHECK(messages[0]["content"] == "A");
  CHECK(messages[1]["content"] == "");
  CHECK(messages[2]["content"] == "now: 3");
  CHECK(messages[3]["content"] == "now: 4");
  const Call response = parse_call(Api::kResponses, R"({"instructions":"now: 1\nA","input":[
      {"role":"system","content":"now: 2\nB"},{"role":"user","content":"now: 3"}]})",
                                   rules)
                            .value();
  CHECK(response.volatile_lines == 2);
  CHECK(response.instructions == "A");

  for (const bool stream : {false, true}) {
    Call call = chat;
    call.stream = call.include_usage = stream;
    const auto writer = make_answer_writer(call, "1", 5);
    std::string out;
    writer->started({"m", 2, 0, 0}, &out);
    writer->done({}, &out);
    const Json answer = stream ? tests::sse_objects(out).back() : Json::parse(out);
    CHECK(answer["usage"]["volatile_lines"] == 2);
  }
  const auto writer = make_answer_writer(parsed(with("\"stream\":true")), "a-2", 5);
  std::string out;
  ipc::DoneEvent done;
  done.usage.reasoning_tokens = 3;
  writer->done(done, &out);
  const auto events = tests::sse_events(out);
  const Json& usage = events[events.size() - 2]["usage"];
  CHECK(usage["output_tokens_details"]["thinking_tokens"] == 3);
  CHECK_FALSE(usage.contains("volatile_lines"));
}

}  // namespace
}  // namespace hearth::http
