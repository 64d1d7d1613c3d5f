// Tool calls and reasoning, over the socket and over HTTP, with the real daemon.

#include <doctest/doctest.h>
#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "ipc/wire/codec.h"
#include "tests/e2e/http_client.h"
#include "tests/e2e/tiny_model.h"
#include "tests/sse_events.h"

namespace hearth::e2e {
namespace {

using Json = nlohmann::json;
using ipc::DeltaChannel;

// In the style of Hermes and Qwen.
constexpr const char* kTemplate =
    "{% for t in tools or [] %}{{ t.function.name }} {% endfor %}"
    "{% for m in messages %}{{ m.role }} {{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}"
    " {% endfor %}";
constexpr const char* kTools =
    R"([{"type":"function","function":{"name":"get_weather","parameters":{"type":"object",)"
    R"("properties":{"city":{"type":"string","maxLength":4},"days":{"enum":[1,2]}},)"
    R"("required":["city"]}}},{"type":"function","function":{"name":"now"}}])";

struct ToolAnswer {
  std::string text, reasoning;
  std::vector<std::pair<ipc::ToolCall, std::string>> calls;
  std::vector<std::string> reasons;
  std::optional<Error> error;
};

ToolAnswer ask(ipc::Client& client, const ipc::GenerateRequest& request) {
  ToolAnswer answer;
  ipc::GenerateCallbacks callbacks;
  callbacks.on_delta = [&answer](const ipc::Delta& delta) {
    if (delta.header.sample != 0) return;
    answer.text += delta.text;
    for (const ipc::DeltaPart& part : delta.parts) {
      if (part.channel == DeltaChannel::kReasoning) answer.reasoning += part.text;
      if (part.channel == DeltaChannel::kCall) {
        answer.calls.emplace_back(ipc::decode_tool_call(part.text).value(), "");
      }
      if (part.channel == DeltaChannel::kArguments) answer.calls.back().second += part.text;
    }
  };
  const Result<ipc::DoneEvent> done = client.generate(request, callbacks);
  if (done.ok()) {
    answer.reasons = done->finish_reasons;
  } else {
    answer.error = done.error();
  }
  return answer;
}

ipc::GenerateRequest conversation(uint64_t seed, const std::string& choice) {
  ipc::GenerateRequest request;
  request.model = "tiny";
  request.messages.text = R"([{"role":"user","content":"the"}])";
  request.tools.text = kTools;
  request.tool_choice = choice;
  request.seed = seed;
  request.max_tokens = 400;
  request.temperature = 1;
  return request;
}

void check_arguments(const std::string& name, const std::string& text) {
  const Json arguments = Json::parse(text, nullptr, false);
  REQUIRE_MESSAGE(arguments.is_object(), text);
  if (name == "now") {
    CHECK(arguments.empty());
    return;
  }
  REQUIRE(name == "get_weather");
  CHECK(arguments.at("city").is_string());
  for (const auto& [key, value] : arguments.items()) CHECK((key == "city" || key == "days"));
}

TEST_CASE("a required tool call is made, and is valid") {
  const Sandbox sandbox;
  write_tiny_model(sandbox.models() / "tiny.gguf", 1, kTemplate);
  const Daemon daemon(sandbox);
  ipc::Client client = daemon.connect();
  int ended = 0;
  std::set<std::string> names, ids;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    const ToolAnswer answer = ask(client, conversation(seed, "required"));
    REQUIRE_MESSAGE(!answer.error, answer.error->message);
    if (answer.reasons.at(0) == "length") continue;
    ++ended;
    CHECK(answer.reasons.at(0) == "tool_calls");
    CHECK(answer.text.empty());
    REQUIRE_FALSE(answer.calls.empty());
    for (const auto& [call, arguments] : answer.calls) {
      check_arguments(call.name, arguments);
      names.insert(call.name);
      CHECK(call.id.size() == 9);
      CHECK(ids.insert(call.id).second);
    }
    // The same seed gives the same calls, to the id.
    const ToolAnswer again = ask(client, conversation(seed, "required"));
    REQUIRE(again.calls.size() == answer.calls.size());
    CHECK(again.calls.front().first == answer.calls.front().first);
    CHECK(again.calls.front().second == answer.calls.front().second);
  }
  CHECK(ended >= 4);
  CHECK(names.size() == 2);

  ipc::GenerateRequest one = conversation(3, "now");
  one.parallel_tool_calls = false;
  one.n = 2;
  const ToolAnswer named = ask(client, one);
  REQUIRE_MESSAGE(!named.error, named.error->message);
  REQUIRE(named.calls.size() == 1);
  CHECK(named.calls[0].first.name == "now");
  CHECK(named.reasons == std::vector<std::string>{"tool_calls", "tool_calls"});
}

TEST_CASE("tool calls and their results are rendered by the model's template") {
  const Sandbox sandbox;
  write_tiny_model(sandbox.models() / "tiny.gguf", 1, kTemplate);
  const Daemon daemon(sandbox);
  ipc::Client client = daemon.connect();
  ipc::GenerateRequest request = seeded(5, 30);
  request.model = "tiny";
  request.prompt =
      R"(user the assistant <tool_call>{"name": "now", "arguments": {"a": 1}}</tool_call> tool abc )";
  const Answer plain = run(client, request);
  REQUIRE_MESSAGE(plain.done.has_value(), why(plain));
  request.prompt.clear();
  request.messages.text =
      R"([{"role":"user","content":"the"},{"role":"assistant","content":"","tool_calls":[)"
      R"({"id":"a","type":"function","function":{"name":"now","arguments":"{\"a\":1}"}}]},)"
      R"({"role":"tool","tool_call_id":"a","content":"abc"}])";
  const Answer chat = run(client, request);
  REQUIRE_MESSAGE(chat.done.has_value(), why(chat));
  CHECK(chat.ids.at(0) == plain.ids.at(0));

  // Random letters are not a call, and stay text.
  ipc::GenerateRequest free = conversation(9, "auto");
  free.max_tokens = 40;
  const ToolAnswer answer = ask(client, free);
  REQUIRE_MESSAGE(!answer.error, answer.error->message);
  CHECK(answer.calls.empty());
}

TEST_CASE("unsupported requests with tools are refused by name") {
  const Sandbox sandbox;
  write_tiny_model(sandbox.models() / "tiny.gguf", 1, kTemplate);
  write_tiny_model(sandbox.models() / "other.gguf", 1,
                   "{% for m in messages %}{{ m.content }}{% endfor %}");
  const Daemon daemon(sandbox);
  ipc::Client client = daemon.connect();
  ipc::GenerateRequest other = conversation(1, "auto");
  other.model = "other";
  ToolAnswer answer = ask(client, other);
  REQUIRE(answer.error.has_value());
  CHECK(answer.error->field == "tools");
  CHECK(answer.error->code == ErrorCode::kUnsupported);
  CHECK(answer.error->message.find("hermes") != std::string::npos);
  other.tool_choice = "none";
  CHECK_FALSE(ask(client, other).error.has_value());

  struct Case {
    const char* tools;
    const char* choice;
    const char* field;
  };
  const Case cases[] = {
      {kTools, "nonesuch", "tool_choice"},
      {"", "required", "tool_choice"},
      {R"([{"type":"function","function":{"name":"a b"}}])", "auto", "tools"},
      {R"([{"type":"function"}])", "auto", "tools"},
      {R"([{"type":"web_search"}])", "auto", "tools"},
      {R"([{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"f"}}])",
       "auto", "tools"},
      {R"([{"type":"function","function":{"name":"f","parameters":{"type":"object","not":{}}}}])",
       "required", "tools"},
  };
  for (const Case& each : cases) {
    ipc::GenerateRequest request = conversation(1, each.choice);
    request.tools.text = each.tools;
    answer = ask(client, request);
    REQUIRE_MESSAGE(answer.error.has_value(), each.tools);
    CHECK_MESSAGE(answer.error->field == each.field, answer.error->message);
  }
  ipc::GenerateRequest both = conversation(1, "auto");
  both.json_schema = "true";
  CHECK_FALSE(ask(client, both).error.has_value());
  both.json_schema = {};
  both.grammar = "root ::= \"a\"";
  const ToolAnswer refused = ask(client, both);
  REQUIRE(refused.error.has_value());
  CHECK(refused.error->field == "tools");
}

TEST_CASE("tool calls over HTTP, in every API, whole and streamed") {
  const Sandbox sandbox;
  write_tiny_model(sandbox.models() / "tiny.gguf", 1, kTemplate);
  const Daemon daemon(sandbox);
  HttpClient http(daemon);
  const std::string ask = fmt::format(
      R"({{"model":"tiny","seed":2,"max_tokens":400,"tools":{},"tool_choice":{{"type":"function",)"
      R"("function":{{"name":"get_weather"}}}},"parallel_tool_calls":false,)"
      R"("messages":[{{"role":"user","content":"the"}}])",
      kTools);
  const HttpAnswer whole = http.ask("POST", "/v1/chat/completions", ask + "}");
  REQUIRE_MESSAGE(whole.status == 200, whole.body);
  const Json choice = Json::parse(whole.body)["choices"][0];
  CHECK(choice["finish_reason"] == "tool_calls");
  CHECK(choice["message"]["content"].is_null());
  const Json call = choice["message"]["tool_calls"][0];
  check_arguments(call["function"]["name"], call["function"]["arguments"]);

  const HttpAnswer streamed = http.ask("POST", "/v1/chat/completions", ask + R"(,"stream":true})");
  std::string id, arguments, reason;
  for (const Json& event : tests::sse_objects(streamed.body)) {
    const Json& each = event["choices"][0];
    for (const Json& part : each["delta"].value("tool_calls", Json::array())) {
      if (part.contains("id")) id = part["id"];
      arguments += part["function"]["arguments"].get<std::string>();
    }
    if (each["finish_reason"].is_string()) reason = each["finish_reason"];
  }
  CHECK(id == call["id"]);
  CHECK(arguments == call["function"]["arguments"]);
  CHECK(reason == "tool_calls");

  const HttpAnswer response = http.ask(
      "POST", "/v1/responses",
      R"({"model":"tiny","input":"the","tool_choice":"required","parallel_tool_calls":false,)"
      R"("tools":[{"type":"function","name":"now"}]})");
  REQUIRE_MESSAGE(response.status == 200, response.body);
  CHECK(Json::parse(response.body)["output"][0]["name"] == "now");
  const HttpAnswer message =
      http.ask("POST", "/v1/messages",
               R"({"model":"tiny","max_tokens":300,"messages":[{"role":"user","content":"the"}],)"
               R"("tool_choice":{"type":"any","disable_parallel_tool_use":true},)"
               R"("tools":[{"name":"now","input_schema":{"type":"object","properties":{}}}]})");
  REQUIRE_MESSAGE(message.status == 200, message.body);
  const Json answer = Json::parse(message.body);
  CHECK(answer["stop_reason"] == "tool_use");
  CHECK(answer["content"][0]["type"] == "tool_use");
}

TEST_CASE("the input of a custom tool follows its lark grammar") {
  const Sandbox sandbox;
  write_tiny_model(sandbox.models() / "tiny.gguf", 1, kTemplate);
  const Daemon daemon(sandbox);
  HttpClient http(daemon);
  const auto ask = [&](const std::string& lark) {
    const Json format = {{"type", "grammar"}, {"syntax", "lark"}, {"definition", lark}};
    const Json tool = {{"type", "custom"}, {"name", "math"}, {"format", format}};
    return http.ask("POST", "/v1/responses",
                    Json{{"model", "tiny"},
                         {"input", "the"},
                         {"temperature", 1},
                         {"max_output_tokens", 300},
                         {"parallel_tool_calls", false},
                         {"tool_choice", "required"},
                         {"tools", Json::array({tool})}}
                        .dump());
  };
  for (int i = 0; i < 4; ++i) {
    const HttpAnswer answer = ask("start: INT (\" + \" INT)~1..3 \"\\n\"\nINT: /[0-9]{1,3}/");
    REQUIRE_MESSAGE(answer.status == 200, answer.body);
    const Json call = Json::parse(answer.body)["output"][0];
    CHECK(call["type"] == "custom_tool_call");
    CHECK(call["name"] == "math");
    const std::string input = call["input"];
    CHECK_MESSAGE(std::regex_match(input, std::regex("[0-9]{1,3}( \\+ [0-9]{1,3}){1,3}\n")), input);
  }
  const HttpAnswer refused = ask("start: \"a\"\n%declare B");
  CHECK(refused.status == 400);
  CHECK_MESSAGE(refused.body.find("lark, line 2: %declare") != std::string::npos, refused.body);
}

TEST_CASE("reasoning that the prompt has opened is separated from the answer") {
  const Sandbox sandbox;
  write_tiny_model(sandbox.models() / "tiny.gguf", 1,
                   "{% for m in messages %}{{ m.role }} {{ m.content.split('</think>')[-1] }} "
                   "{% endfor %}{% if add_generation_prompt %}<think>\n{% endif %}");
  const Daemon daemon(sandbox);
  HttpClient http(daemon);
  const std::string ask = R"({"model":"tiny","seed":5,"ignore_eos":true,"max_tokens":30,)"
                          R"("messages":[{"role":"user","content":"the"}])";
  const HttpAnswer whole = http.ask("POST", "/v1/chat/completions", ask + "}");
  REQUIRE_MESSAGE(whole.status == 200, whole.body);
  const Json body = Json::parse(whole.body);
  const std::string reasoning = body["choices"][0]["message"].value("reasoning_content", "");
  CHECK_FALSE(reasoning.empty());
  CHECK(body["choices"][0]["message"]["content"] == "");
  CHECK(body["usage"]["completion_tokens_details"]["reasoning_tokens"] == 30);
  const HttpAnswer streamed = http.ask("POST", "/v1/chat/completions", ask + R"(,"stream":true})");
  std::string answer;
  for (const Json& event : tests::sse_objects(streamed.body)) {
    answer += event["choices"][0]["delta"].value("reasoning_content", "");
  }
  CHECK(answer == reasoning);
  const HttpAnswer message =
      http.ask("POST", "/v1/messages",
               R"({"model":"tiny","max_tokens":9,"messages":[{"role":"user","content":"the"}]})");
  REQUIRE_MESSAGE(message.status == 200, message.body);
  // A sample may end before it has any text.
  const std::string type = Json::parse(message.body)["content"][0]["type"];
  CHECK((type == "thinking" || type == "text"));
}

TEST_CASE("reasoning asked for where the template has none is named, in every API") {
  const Sandbox sandbox;
  write_tiny_model(sandbox.models() / "tiny.gguf", 1, kTemplate);
  const Daemon daemon(sandbox);
  HttpClient http(daemon);
  const auto ignored = [&http](const std::string& path, Json body) {
    body["model"] = "tiny";
    const HttpAnswer answer = http.ask("POST", path, body.dump());
    REQUIRE_MESSAGE(answer.status == 200, answer.body);
    const auto found = answer.fields.find("x-hearth-ignored");
    return found == answer.fields.end() ? std::string() : found->second;
  };
  const Json messages = Json::array({{{"role", "user"}, {"content", "the"}}});
  const Json chat = {{"messages", messages}, {"max_tokens", 2}};
  const auto with = [](Json body, const char* members) {
    body.update(Json::parse(members));
    return body;
  };
  CHECK(ignored("/v1/chat/completions", chat).empty());
  CHECK(ignored("/v1/chat/completions", with(chat, R"({"user":"u","reasoning_effort":"low"})")) ==
        "user, reasoning_effort");
  CHECK(ignored("/v1/chat/completions", with(chat, R"({"stream":true,"reasoning_budget":3})")) ==
        "reasoning_budget");
  CHECK(ignored("/v1/chat/completions", with(chat, R"({"reasoning_effort":"none"})")).empty());
  CHECK(ignored("/v1/responses", {{"input", "the"},
                                  {"max_output_tokens", 2},
                                  {"reasoning", {{"effort", "high"}}}}) == "reasoning.effort");
  CHECK(
      ignored("/v1/messages", with(chat, R"({"thinking":{"type":"enabled","budget_tokens":9}})")) ==
      "thinking, thinking.budget_tokens");
  CHECK(ignored("/api/chat",
                {{"messages", messages}, {"think", true}, {"options", {{"num_predict", 2}}}}) ==
        "think");
}

}  // namespace
}  // namespace hearth::e2e
