// Tool calls and reasoning in the form of each API: in requests, whole answers and streams.

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "daemon/http/answers/api_answer.h"
#include "daemon/http/requests/api_request.h"
#include "tests/sse_events.h"
#include "tests/unit/daemon/accepted_call.h"

namespace hearth::http {
namespace {

using Json = nlohmann::json;

Error bad(Api api, const std::string& body) {
  Result<Call> call = parse_call(api, body);
  REQUIRE_FALSE_MESSAGE(call.ok(), body);
  return call.take_error();
}

const std::string kSchema = R"({"type":"object","properties":{"city":{"type":"string"}}})";
const std::string kChatTools =
    R"("tools":[{"type":"function","function":{"name":"f","description":"d","parameters":)" +
    kSchema + "}}]";
const std::string kFlatTools =
    R"("tools":[{"type":"function","name":"f","description":"d","parameters":)" + kSchema + "}]";
const std::string kAnthropicTools =
    R"("tools":[{"name":"f","description":"d","input_schema":)" + kSchema + "}]";
const std::string kHi = R"("messages":[{"role":"user","content":"Hi"}])";

std::string chat(const std::string& more) { return "{" + kHi + "," + kChatTools + more + "}"; }
std::string response(const std::string& more) {
  return R"({"input":"Hi",)" + kFlatTools + more + "}";
}
std::string message(const std::string& more) {
  return R"({"max_tokens":9,)" + kHi + "," + kAnthropicTools + more + "}";
}

TEST_CASE("tools are converted into one form from every API") {
  const Json want =
      Json::parse(R"([{"type":"function","function":{"name":"f","description":"d","parameters":)" +
                  kSchema + "}}]");
  for (const Call& call : {accepted(Api::kChat, chat("")), accepted(Api::kResponses, response("")),
                           accepted(Api::kMessages, message(""))}) {
    CHECK(Json::parse(call.request.tools.text) == want);
    CHECK(call.request.tool_choice == "auto");
    CHECK(call.request.parallel_tool_calls);
  }
  struct Choice {
    Api api;
    std::string body;
    const char* choice;
    bool parallel = true;
  };
  const Choice choices[] = {
      {Api::kChat, chat(R"(,"tool_choice":"none")"), "none"},
      {Api::kChat, chat(R"(,"tool_choice":"required","parallel_tool_calls":false)"), "required",
       false},
      {Api::kChat, chat(R"(,"tool_choice":{"type":"function","function":{"name":"f"}})"), "f"},
      {Api::kResponses, response(R"(,"tool_choice":"required")"), "required"},
      {Api::kResponses, response(R"(,"tool_choice":{"type":"function","name":"f"})"), "f"},
      {Api::kMessages, message(R"(,"tool_choice":{"type":"any"})"), "required"},
      {Api::kMessages, message(R"(,"tool_choice":{"type":"none"})"), "none"},
      {Api::kMessages,
       message(R"(,"tool_choice":{"type":"tool","name":"f","disable_parallel_tool_use":true})"),
       "f", false},
      {Api::kMessages,
       message(R"(,"tool_choice":{"type":"auto","disable_parallel_tool_use":true})"), "auto",
       false},
  };
  for (const Choice& each : choices) {
    const Call call = accepted(each.api, each.body);
    CHECK_MESSAGE(call.request.tool_choice == each.choice, each.body);
    CHECK_MESSAGE(call.request.parallel_tool_calls == each.parallel, each.body);
  }
  // Without tools there is nothing to choose, and the field is ignored.
  CHECK(accepted(Api::kChat,
                 "{" + kHi + R"(,"tools":[],"tool_choice":"auto","parallel_tool_calls":false})")
            .request.tools.empty());
}

TEST_CASE("of the tools only those that a choice allows are offered") {
  const std::string two = R"("tools":[{"type":"function","function":{"name":"f"}},
      {"type":"function","function":{"name":"g"}}])";
  const Call call =
      accepted(Api::kChat, "{" + kHi + "," + two + R"(,"tool_choice":{"type":"allowed_tools",
      "allowed_tools":{"mode":"required","tools":[{"type":"function","function":{"name":"g"}}]}}})");
  CHECK(call.request.tool_choice == "required");
  const Json tools = Json::parse(call.request.tools.text);
  REQUIRE(tools.size() == 1);
  CHECK(tools[0]["function"]["name"] == "g");
  const Call flat = accepted(Api::kResponses, response(R"(,"tool_choice":{"type":"allowed_tools",
      "mode":"auto","tools":[{"type":"function","name":"f"}]})"));
  CHECK(flat.request.tool_choice == "auto");
  CHECK(Json::parse(flat.request.tools.text).size() == 1);
}

struct Case {
  Api api;
  std::string body;
  const char* field;
};

void check_refused(std::span<const Case> cases) {
  for (const Case& each : cases) {
    const Error error = bad(each.api, each.body);
    CHECK_MESSAGE(error.field == each.field, each.body << ": " << error.message);
  }
}

TEST_CASE("custom tools that cannot be read are refused by name") {
  const std::string hi = "{" + kHi;
  const Case cases[] = {
      {Api::kChat, hi + R"(,"tools":[{"type":"custom"}]})", "tools[0].custom"},
      {Api::kChat, hi + R"(,"tools":[{"type":"custom","custom":{}}]})", "tools[0].custom.name"},
      {Api::kChat, hi + R"(,"tools":[{"type":"custom","custom":{"name":"f","strict":true}}]})",
       "tools[0].custom.strict"},
      {Api::kResponses,
       R"({"input":"a","tools":[{"type":"custom","name":"f","format":{"type":"grammar",)"
       R"("syntax":"ebnf","definition":"start: \"a\""}}]})",
       "tools[0].format.syntax"},
      {Api::kResponses,
       R"({"input":"a","tools":[{"type":"custom","name":"f","format":{"type":"json"}}]})",
       "tools[0].format.type"},
      {Api::kResponses, R"({"input":[{"type":"custom_tool_call","name":"f"}]})",
       "input[0].call_id"},
  };
  check_refused(cases);
}

TEST_CASE("unsupported tool options are refused by name") {
  const std::string hi = "{" + kHi;
  const Case cases[] = {
      {Api::kChat, hi + R"(,"tools":{}})", "tools"},
      {Api::kChat, hi + R"(,"tools":["f"]})", "tools[0]"},
      {Api::kChat, hi + R"(,"tools":[{"type":"retrieval"}]})", "tools[0].type"},
      {Api::kChat, hi + R"(,"tools":[{"type":"function"}]})", "tools[0].function"},
      {Api::kChat, hi + R"(,"tools":[{"type":"function","function":{}}]})",
       "tools[0].function.name"},
      {Api::kChat, hi + R"(,"tools":[{"type":"function","function":{"name":"f","x":1}}]})",
       "tools[0].function.x"},
      {Api::kChat, hi + R"(,"tools":[{"type":"function","function":{"name":"f","strict":7}}]})",
       "tools[0].function.strict"},
      {Api::kChat, hi + R"(,"tools":[{"type":"function","function":{"name":"f","parameters":7}}]})",
       "tools[0].function.parameters"},
      {Api::kChat, chat(R"(,"tool_choice":"any")"), "tool_choice"},
      {Api::kChat, chat(R"(,"tool_choice":{"type":"custom"})"), "tool_choice.name"},
      {Api::kChat, chat(R"(,"tool_choice":{"type":"other"})"), "tool_choice.type"},
      {Api::kChat, chat(R"(,"tool_choice":{"type":"allowed_tools"})"), "tool_choice.allowed_tools"},
      {Api::kChat,
       chat(R"(,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"none"}})"),
       "tool_choice.allowed_tools.mode"},
      {Api::kResponses,
       response(R"(,"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[]})"),
       "tool_choice.tools"},
      {Api::kResponses,
       response(R"(,"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"name":7}]})"),
       "tool_choice.tools[0]"},
      {Api::kResponses,
       response(R"(,"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"name":"g"}]})"),
       "tool_choice"},
      {Api::kMessages, message(R"(,"tool_choice":{"type":"allowed_tools"})"), "tool_choice.type"},
      {Api::kChat, chat(R"(,"tool_choice":{"type":"function"})"), "tool_choice.name"},
      {Api::kChat, hi + R"(,"functions":[]})", "functions"},
      {Api::kResponses, R"({"input":"a","tools":[{"type":"web_search"}]})", "tools[0].type"},
      {Api::kMessages, message(R"(,"tool_choice":"auto")"), "tool_choice"},
      {Api::kMessages, message(R"(,"tool_choice":{"type":"tool"})"), "tool_choice.name"},
      {Api::kMessages,
       R"({"max_tokens":1,)" + kHi + R"(,"tools":[{"type":"bash_20250124","name":"bash"}]})",
       "tools[0].type"},
      {Api::kMessages,
       R"({"max_tokens":1,"messages":[{"role":"user","content":[{"type":"tool_use","id":"a"}]}]})",
       "messages[0].content[0].type"},
      {Api::kResponses, R"({"input":[{"type":"function_call","call_id":"a"}]})", "input[0].name"},
      {Api::kResponses, R"({"input":[{"type":"function_call_output","output":"a"}]})",
       "input[0].call_id"},
  };
  check_refused(cases);
  const Call strict = accepted(
      Api::kChat, hi + R"(,"tools":[{"type":"function","function":{"name":"f","strict":true}}]})");
  CHECK(Json::parse(strict.request.tools.text)[0]["function"]["strict"] == true);
}

TEST_CASE("a conversation with tool calls and results is the same from every API") {
  const Json want = Json::parse(R"([
      {"role":"user","content":"Hi"},
      {"role":"assistant","content":"Let me see.","reasoning_content":"Hm","tool_calls":[
        {"id":"a1","type":"function","function":{"name":"f","arguments":{"x":1}}},
        {"id":"a2","type":"function","function":{"name":"g","arguments":{}}}]},
      {"role":"tool","tool_call_id":"a1","content":"one"},
      {"role":"tool","tool_call_id":"a2","content":"two"},
      {"role":"user","content":"So?"}])");
  const Call by_chat = accepted(Api::kChat, R"({"messages":[{"role":"user","content":"Hi"},
      {"role":"assistant","content":"Let me see.","reasoning_content":"Hm","tool_calls":[
        {"id":"a1","type":"function","function":{"name":"f","arguments":"{\"x\": 1}"}},
        {"id":"a2","type":"function","function":{"name":"g","arguments":"{}"}}]},
      {"role":"tool","tool_call_id":"a1","content":"one"},
      {"role":"tool","tool_call_id":"a2","content":[{"type":"text","text":"two"}]},
      {"role":"user","content":"So?"}]})");
  CHECK(Json::parse(by_chat.request.messages.text) == want);
  const Call by_responses = accepted(Api::kResponses, R"({"input":[{"role":"user","content":"Hi"},
      {"type":"reasoning","id":"rs_1","summary":[],
       "content":[{"type":"reasoning_text","text":"Hm"}]},
      {"type":"message","role":"assistant","id":"msg_1","status":"completed",
       "content":[{"type":"output_text","text":"Let me see.","annotations":[]}]},
      {"type":"function_call","id":"fc_1","call_id":"a1","name":"f","arguments":"{\"x\":1}",
       "status":"completed"},
      {"type":"function_call","call_id":"a2","name":"g","arguments":"{}"},
      {"type":"function_call_output","call_id":"a1","output":"one"},
      {"type":"function_call_output","call_id":"a2",
       "output":[{"type":"input_text","text":"two"}]},
      {"role":"user","content":"So?"}]})");
  CHECK(Json::parse(by_responses.request.messages.text) == want);
  const Call by_messages = accepted(Api::kMessages, R"({"max_tokens":9,"messages":[
      {"role":"user","content":"Hi"},
      {"role":"assistant","content":[{"type":"thinking","thinking":"Hm","signature":""},
        {"type":"text","text":"Let me see."},
        {"type":"tool_use","id":"a1","name":"f","input":{"x":1}},
        {"type":"tool_use","id":"a2","name":"g","input":{}}]},
      {"role":"user","content":[{"type":"tool_result","tool_use_id":"a1","content":"one"},
        {"type":"tool_result","tool_use_id":"a2","content":[{"type":"text","text":"two"}]},
        {"type":"text","text":"So?"}]}]})");
  Json without = want;  // thinking without a signature is left out
  without[1].erase("reasoning_content");
  CHECK(Json::parse(by_messages.request.messages.text) == without);
}

/// `levels` lists in an object, as the text of a call's arguments.
std::string nested(size_t levels) {
  return R"({"a":)" + std::string(levels, '[') + std::string(levels, ']') + "}";
}

/// A conversation with a call of these arguments, in the form of each API that has them as text.
std::string chat_with(const std::string& arguments) {
  return R"({"messages":[{"role":"user","content":"Hi"},{"role":"assistant","tool_calls":[
      {"id":"a1","type":"function","function":{"name":"f","arguments":)" +
         Json(arguments).dump() + "}}]}]}";
}
std::string response_with(const std::string& arguments) {
  return R"({"input":[{"role":"user","content":"Hi"},
      {"type":"function_call","call_id":"a1","name":"f","arguments":)" +
         Json(arguments).dump() + "}]}";
}

TEST_CASE("arguments given as text may be nested as deep as those given as an object") {
  // Six levels of a conversation are around them, and 30 are allowed.
  constexpr size_t kMost = 23;
  for (const std::string& whole : {nested(kMost), nested(kMost).substr(5, 2 * kMost)}) {
    accepted(Api::kChat, chat_with(whole));
    accepted(Api::kResponses, response_with(whole));
  }
  for (const size_t levels : {kMost + 1, size_t{100}, size_t{100'000}, size_t{3'000'000}}) {
    const std::string deep = nested(levels);
    for (const std::string& each : {deep, std::string(levels + 1, '[')}) {
      const Error by_chat = bad(Api::kChat, chat_with(each));
      CHECK(by_chat.code == ErrorCode::kInvalidArgument);
      CHECK(by_chat.field == "messages[1].tool_calls[0].function.arguments");
      const Error by_responses = bad(Api::kResponses, response_with(each));
      CHECK(by_responses.code == ErrorCode::kInvalidArgument);
      CHECK(by_responses.field == "input[1].arguments");
      if (each == deep) CHECK(by_chat.message.ends_with("arguments: a: nested deeper than 24"));
    }
  }
  // The Anthropic API has an object there, within the bounds on the body.
  const auto by_messages = [](size_t levels) {
    return R"({"max_tokens":9,"messages":[{"role":"user","content":"Hi"},{"role":"assistant",
        "content":[{"type":"tool_use","id":"a1","name":"f","input":)" +
           nested(levels) +
           R"(}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"a1"}]}]})";
  };
  accepted(Api::kMessages, by_messages(kMost));
  bad(Api::kMessages, by_messages(100'000));
}

TEST_CASE("arguments that are not a JSON object stay text, and of equal keys the last applies") {
  const auto arguments = [](const std::string& text) {
    const Call call = accepted(Api::kChat, chat_with(text));
    return Json::parse(call.request.messages.text)[1]["tool_calls"][0]["function"]["arguments"];
  };
  for (const char* text : {"", "{", "7", "[1]", R"({"a":1e400})", "{\"a\":1}x"}) {
    CHECK(arguments(text) == text);
  }
  CHECK(arguments(R"({"a":1,"b":2,"a":{"c":3}})") == Json::parse(R"({"a":{"c":3},"b":2})"));
}

/// An answer of reasoning, text and two calls.
std::string answer_of(const Call& call, bool with_text = true) {
  const auto writer = make_answer_writer(call, "1-2", 1700000000);
  std::string out;
  writer->started({"m", 12, 8, 0.5}, &out);
  writer->reasoning(0, "Hm", &out);
  writer->reasoning(0, "m\"", &out);
  if (with_text) writer->delta(0, "Yes", {}, &out);
  writer->call(0, {0, "a1B2c3D4e", "f"}, &out);
  writer->arguments(0, "{\"x\"", &out);
  writer->arguments(0, ": 1}", &out);
  writer->call(0, {1, "b1B2c3D4e", "g"}, &out);
  writer->arguments(0, "{}", &out);
  writer->sample_done({0, "tool_calls", 9, ""}, &out);
  ipc::DoneEvent done;
  done.finish_reasons = {"tool_calls"};
  done.model = "m";
  done.usage.output_tokens = 9;
  done.usage.reasoning_tokens = 4;
  writer->done(done, &out);
  return out;
}

TEST_CASE("whole answers separate tool calls and reasoning from text") {
  const Json choice = Json::parse(answer_of(accepted(Api::kChat, chat(""))))["choices"][0];
  CHECK(choice["finish_reason"] == "tool_calls");
  CHECK(choice["message"]["content"] == "Yes");
  CHECK(choice["message"]["reasoning_content"] == "Hmm\"");
  CHECK(choice["message"]["tool_calls"] == Json::parse(R"([
      {"id":"a1B2c3D4e","type":"function","function":{"name":"f","arguments":"{\"x\": 1}"}},
      {"id":"b1B2c3D4e","type":"function","function":{"name":"g","arguments":"{}"}}])"));
  CHECK(Json::parse(
            answer_of(accepted(Api::kChat, chat("")), false))["choices"][0]["message"]["content"]
            .is_null());

  const Json body = Json::parse(answer_of(accepted(Api::kResponses, response(""))));
  REQUIRE(body["output"].size() == 4);
  CHECK(body["output"][0]["content"][0]["text"] == "Hmm\"");
  CHECK(body["output"][1]["content"][0]["text"] == "Yes");
  CHECK(body["output"][2]["type"] == "function_call");
  CHECK(body["output"][2]["call_id"] == "a1B2c3D4e");
  CHECK(body["output"][2]["arguments"] == "{\"x\": 1}");
  CHECK(body["usage"]["output_tokens_details"]["reasoning_tokens"] == 4);
  CHECK(body["tools"][0]["name"] == "f");
  CHECK(body["tool_choice"] == "auto");

  const Json answer = Json::parse(answer_of(accepted(Api::kMessages, message(""))));
  CHECK(answer["stop_reason"] == "tool_use");
  CHECK(answer["content"] == Json::parse(R"([
      {"type":"thinking","thinking":"Hmm\"","signature":""},{"type":"text","text":"Yes"},
      {"type":"tool_use","id":"a1B2c3D4e","name":"f","input":{"x":1}},
      {"type":"tool_use","id":"b1B2c3D4e","name":"g","input":{}}])"));
}

TEST_CASE("a whole answer survives arguments nested without bound") {
  for (const size_t levels : {size_t{60}, size_t{100}, size_t{1'000'000}}) {
    const auto writer =
        make_answer_writer(accepted(Api::kMessages, message("")), "1-2", 1700000000);
    std::string out;
    writer->started({"m", 12, 8, 0.5}, &out);
    writer->call(0, {0, "a1", "f"}, &out);
    writer->arguments(0, nested(levels), &out);
    writer->sample_done({0, "tool_calls", 9, ""}, &out);
    ipc::DoneEvent done;
    done.finish_reasons = {"tool_calls"};
    writer->done(done, &out);
    CHECK(Json::parse(out)["content"][0]["input"].empty() == (levels > 60));
  }
}

TEST_CASE("a stream of chunks adds up to the same") {
  std::string reasoning, content;
  std::vector<Json> calls;
  std::string reason;
  for (const Json& event :
       tests::sse_objects(answer_of(accepted(Api::kChat, chat(R"(,"stream":true)"))))) {
    const Json& choice = event["choices"][0];
    const Json& delta = choice["delta"];
    reasoning += delta.value("reasoning_content", "");
    content += delta.value("content", "");
    for (const Json& part : delta.value("tool_calls", Json::array())) {
      const auto index = part["index"].get<size_t>();
      if (index == calls.size())
        calls.push_back(part);
      else
        calls[index]["function"]["arguments"] =
            calls[index]["function"]["arguments"].get<std::string>() +
            part["function"]["arguments"].get<std::string>();
    }
    if (choice["finish_reason"].is_string()) reason = choice["finish_reason"];
  }
  CHECK(reasoning == "Hmm\"");
  CHECK(content == "Yes");
  CHECK(reason == "tool_calls");
  REQUIRE(calls.size() == 2);
  CHECK(calls[0]["id"] == "a1B2c3D4e");
  CHECK(calls[0]["function"]["name"] == "f");
  CHECK(calls[0]["function"]["arguments"] == "{\"x\": 1}");
  CHECK(calls[1]["function"]["arguments"] == "{}");
}

TEST_CASE("streams of typed events open and close their parts") {
  std::vector<std::string> types;
  const auto events =
      tests::sse_objects(answer_of(accepted(Api::kResponses, response(R"(,"stream":true)"))));
  int64_t open = -1, items = 0;
  std::string arguments;
  for (size_t i = 0; i < events.size(); ++i) {
    CHECK(events[i]["sequence_number"] == i);
    const std::string type = events[i]["type"];
    if (type == "response.output_item.added") {
      CHECK(open == -1);
      open = events[i]["output_index"].get<int64_t>();
      CHECK(open == items++);
    } else if (type == "response.output_item.done") {
      CHECK(events[i]["output_index"] == open);
      open = -1;
    } else if (type == "response.function_call_arguments.delta") {
      arguments += events[i]["delta"].get<std::string>();
    } else if (type == "response.function_call_arguments.done") {
      CHECK(events[i]["arguments"] == arguments);
      arguments.clear();
    }
  }
  CHECK(items == 4);
  CHECK(open == -1);
  CHECK(events.back()["response"]["output"].size() == 4);

  std::string seen;
  for (const Json& event :
       tests::sse_objects(answer_of(accepted(Api::kMessages, message(R"(,"stream":true)"))))) {
    const std::string type = event["type"];
    if (type == "content_block_start")
      seen += event["content_block"]["type"].get<std::string>() + ":";
    if (type == "content_block_delta") {
      const Json& delta = event["delta"];
      seen +=
          delta.value("thinking", "") + delta.value("text", "") + delta.value("partial_json", "");
    }
    if (type == "content_block_stop") seen += ";";
    if (type == "message_delta") seen += event["delta"]["stop_reason"].get<std::string>();
  }
  CHECK(seen == "thinking:Hmm\";text:Yes;tool_use:{\"x\": 1};tool_use:{};tool_use");
}

const std::string kChatCustom =
    R"("tools":[{"type":"custom","custom":{"name":"f","description":"d","format":)"
    R"({"type":"grammar","grammar":{"syntax":"regex","definition":"a|b"}}}},)"
    R"({"type":"custom","custom":{"name":"g"}}])";
const std::string kFlatCustom =
    R"("tools":[{"type":"custom","name":"f","description":"d","format":)"
    R"({"type":"grammar","syntax":"regex","definition":"a|b"}},{"type":"custom","name":"g"}])";

/// A call of f with the input `a"b`, and one of g that is cut short.
std::string custom_answer(const Call& call) {
  const auto writer = make_answer_writer(call, "1-2", 1700000000);
  std::string out;
  writer->started({"m", 12, 8, 0.5}, &out);
  writer->call(0, {0, "a1", "f"}, &out);
  writer->arguments(0, R"({"input": "a\")", &out);
  writer->arguments(0, R"(b"})", &out);
  writer->call(0, {1, "b1", "g"}, &out);
  writer->arguments(0, R"({"inp)", &out);
  writer->sample_done({0, "tool_calls", 9, ""}, &out);
  ipc::DoneEvent done;
  done.finish_reasons = {"tool_calls"};
  done.model = "m";
  writer->done(done, &out);
  return out;
}

TEST_CASE("custom tools are functions of one text for the model, and texts for the client") {
  const Json input = {{"type", "string"}, {"pattern", "^(a|b)$"}};
  for (const Call& call : {accepted(Api::kChat, "{" + kHi + "," + kChatCustom + "}"),
                           accepted(Api::kResponses, R"({"input":"Hi",)" + kFlatCustom + "}")}) {
    const Json tools = Json::parse(call.request.tools.text);
    CHECK(tools[0]["function"]["name"] == "f");
    CHECK(tools[0]["function"]["description"] == "d");
    CHECK(tools[0]["function"]["strict"] == true);
    CHECK(tools[0]["function"]["parameters"]["properties"]["input"] == input);
    CHECK(tools[1]["function"]["parameters"]["properties"]["input"].size() == 1);
    CHECK(call.is_custom("g"));
  }
  const Call anchored =
      accepted(Api::kResponses, R"({"input":"Hi","tools":[{"type":"custom","name":"f","format":)"
                                R"({"type":"grammar","syntax":"regex","definition":"^a+$"}}]})");
  CHECK(anchored.request.tools.text.find(R"("pattern":"^a+$")") != std::string::npos);
  // Another syntax is a grammar of the text.
  const std::string lark = R"(,"syntax":"lark","definition":"start: \"a\""})";
  const Json bound = {{"type", "string"}, {"lark", "start: \"a\""}};
  for (const Call& call :
       {accepted(Api::kResponses, R"({"input":"Hi","tools":[{"type":"custom","name":"f",)"
                                  R"("format":{"type":"grammar")" +
                                      lark + "}]}"),
        accepted(Api::kChat, "{" + kHi +
                                 R"(,"tools":[{"type":"custom","custom":{"name":"f",)"
                                 R"("format":{"type":"grammar","grammar":{"x":null)" +
                                 lark + "}}}]}")}) {
    const Json tools = Json::parse(call.request.tools.text);
    CHECK(tools[0]["function"]["parameters"]["properties"]["input"] == bound);
  }
  const Call named = accepted(Api::kChat, "{" + kHi + "," + kChatCustom +
                                              R"(,"tool_choice":{"type":"custom",)"
                                              R"("custom":{"name":"g"}}})");
  CHECK(named.request.tool_choice == "g");
  const Call allowed =
      accepted(Api::kResponses, R"({"input":"Hi",)" + kFlatCustom +
                                    R"(,"tool_choice":{"type":"allowed_tools","mode":"required",)"
                                    R"("tools":[{"type":"custom","name":"g"}]}})");
  CHECK(Json::parse(allowed.request.tools.text).size() == 1);

  // Calls and results that are sent back.
  const Call back = accepted(
      Api::kResponses,
      R"({"input":[{"type":"custom_tool_call","id":"x","status":"completed","call_id":"a1",)"
      R"("name":"f","input":"a\"b"},{"type":"custom_tool_call_output","call_id":"a1","output":"r"}]})");
  const Call chat_back = accepted(
      Api::kChat,
      R"({"messages":[{"role":"assistant","tool_calls":[{"id":"a1","type":"custom","custom":)"
      R"({"name":"f","input":"a\"b"}}]},{"role":"tool","tool_call_id":"a1","content":"r"}]})");
  CHECK(Json::parse(back.request.messages.text) == Json::parse(chat_back.request.messages.text));
  CHECK(Json::parse(back.request.messages.text)[0]["tool_calls"][0]["function"]["arguments"] ==
        Json({{"input", "a\"b"}}));
}

TEST_CASE("an answer has calls of custom tools in the words of its API") {
  const Json chosen = Json::parse(
      custom_answer(accepted(Api::kChat, "{" + kHi + "," + kChatCustom + "}")))["choices"][0];
  CHECK(chosen["message"]["tool_calls"] ==
        Json::parse(R"([{"id":"a1","type":"custom","custom":{"name":"f","input":"a\"b"}},)"
                    R"({"id":"b1","type":"custom","custom":{"name":"g","input":""}}])"));
  const Json body = Json::parse(
      custom_answer(accepted(Api::kResponses, R"({"input":"Hi",)" + kFlatCustom + "}")));
  CHECK(body["output"][0]["type"] == "custom_tool_call");
  CHECK(body["output"][0]["input"] == "a\"b");
  CHECK(body["tools"] == Json::parse("{" + kFlatCustom + "}")["tools"]);
}

TEST_CASE("streams bring the input of a custom tool at once") {
  std::string inputs[2];
  for (const Json& event : tests::sse_objects(custom_answer(
           accepted(Api::kChat, "{" + kHi + "," + kChatCustom + R"(,"stream":true})")))) {
    for (const Json& part : event["choices"][0]["delta"].value("tool_calls", Json::array())) {
      CHECK(part.value("type", "custom") == "custom");
      inputs[part["index"].get<size_t>()] += part["custom"].value("input", "");
    }
  }
  CHECK(inputs[0] == "a\"b");
  CHECK(inputs[1].empty());
  std::string seen;
  for (const Json& event : tests::sse_objects(custom_answer(
           accepted(Api::kResponses, R"({"input":"Hi","stream":true,)" + kFlatCustom + "}")))) {
    const std::string type = event["type"];
    if (type == "response.custom_tool_call_input.delta")
      seen += "+" + event["delta"].get<std::string>();
    if (type == "response.custom_tool_call_input.done")
      seen += "." + event["input"].get<std::string>();
    CHECK(type.find("function_call") == std::string::npos);
  }
  CHECK(seen == "+a\"b.a\"b.");
}

TEST_CASE("what a client's library made of texts may come back with them") {
  using Names = std::vector<std::string_view>;
  CHECK(accepted(Api::kChat, R"({"messages":[{"role":"user","content":"a"},
      {"role":"assistant","content":"{}","parsed":{"a":1},"tool_calls":[{"id":"c","type":"function",
       "function":{"name":"f","arguments":"{}","parsed_arguments":{}}}]},
      {"role":"tool","tool_call_id":"c","content":"7"}]})")
            .ignored == Names{"parsed_arguments", "parsed"});
  CHECK(accepted(Api::kResponses, R"({"input":[{"role":"user","content":"a"},
      {"type":"message","role":"assistant","content":[{"type":"output_text","text":"{}","parsed":7}]},
      {"type":"function_call","call_id":"c","name":"f","arguments":"{}","parsed_arguments":[]},
      {"type":"function_call_output","call_id":"c","output":"7"}]})")
            .ignored == Names{"parsed", "parsed_arguments"});
  CHECK(accepted(Api::kMessages, R"({"max_tokens":3,"messages":[{"role":"user","content":"a"},
      {"role":"assistant","content":[{"type":"text","text":"{}","parsed_output":{}}]},
      {"role":"user","content":"b"}]})")
            .ignored == Names{"parsed_output"});
}

}  // namespace
}  // namespace hearth::http
