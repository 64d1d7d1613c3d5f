// Requests in OpenAI's form: what is carried over, what is left out, and what keeps a request here.

#include "daemon/broker/remote/remote_request.h"

#include <doctest/doctest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace hearth::broker {
namespace {

using nlohmann::json;

ipc::GenerateRequest chat(const std::string& messages = R"([{"role":"user","content":"hi"}])") {
  ipc::GenerateRequest request;
  request.model = "code";
  request.messages.text = messages;
  return request;
}

json body_of(const ipc::GenerateRequest& request, bool with_seed = true) {
  const Result<RemoteRequest> made = make_remote_request(request, "far", with_seed);
  REQUIRE_MESSAGE(made.ok(), made.error().message);
  return json::parse(made->body);
}

TEST_CASE("a chat is carried over with its settings, and with nothing else") {
  ipc::GenerateRequest request = chat(
      R"([{"role":"system","content":"s","cache_keep_s":60,"cache_keep_bytes":3},)"
      R"({"role":"assistant","content":"","reasoning_content":"r","reasoning_of":"print",)"
      R"("tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":{"a":[1]}}}]},)"
      R"({"role":"tool","tool_call_id":"c","content":"1"}])");
  request.tools.text =
      R"([{"type":"function","function":{"name":"f","parameters":{"type":"object"}},"cache_keep_s":9}])";
  request.tool_choice = "f";
  request.parallel_tool_calls = false;
  request.n = 2;
  request.max_tokens = 7;
  request.temperature = 0.8f;
  request.top_p = 0.9f;
  request.presence_penalty = 0.5f;
  request.penalty_window = -1;
  request.seed = 18446744073709551615u;
  request.stop = {"END"};
  // Of this machine alone:
  request.priority = "interactive";
  request.deadline_ms = 1000;
  request.cache_keep_s = 60;
  request.cache_share = "team";
  request.prediction = "p";
  request.detach = true;
  request.remote = true;
  CHECK(
      body_of(request) ==
      json::parse(
          R"({"model":"far","messages":[{"role":"system","content":"s"},)"
          R"({"role":"assistant","content":"","tool_calls":[{"id":"c","type":"function",)"
          R"("function":{"name":"f","arguments":"{\"a\":[1]}"}}]},)"
          R"({"role":"tool","tool_call_id":"c","content":"1"}],)"
          R"("tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}],)"
          R"("tool_choice":{"type":"function","function":{"name":"f"}},)"
          R"("parallel_tool_calls":false,"max_completion_tokens":7,"n":2,"temperature":0.8,)"
          R"("top_p":0.9,"presence_penalty":0.5,"seed":18446744073709551615,"stop":["END"],)"
          R"("stream":true,"stream_options":{"include_usage":true}})"));
  // The daemon's own seed is not part of the request.
  CHECK_FALSE(body_of(request, false).contains("seed"));
  CHECK(body_of(chat())["max_completion_tokens"] == 256);
}

TEST_CASE("a schema, an effort, a prompt as a message, a completion with a gap") {
  ipc::GenerateRequest request = chat();
  request.max_tokens = 0;
  request.json_schema = R"({"type":"object"})";
  CHECK(body_of(request)["response_format"] == json{{"type", "json_object"}});
  CHECK_FALSE(body_of(request).contains("max_completion_tokens"));
  request.json_schema = R"({"type":"integer"})";
  request.relax_schema = true;
  CHECK(body_of(request)["response_format"]["json_schema"]["strict"] == false);
  CHECK(body_of(request)["response_format"]["json_schema"]["schema"]["type"] == "integer");

  request = chat();
  request.reasoning = "on";
  request.reasoning_budget = 1024;
  request.template_kwargs.text = R"({"reasoning_effort":"low"})";
  CHECK(body_of(request)["reasoning_effort"] == "low");
  request = chat();
  request.reasoning = "off";
  CHECK(body_of(request)["reasoning_effort"] == "none");

  request = {};
  request.prompt = "def f";
  request.prompt_as = "message";
  CHECK(body_of(request)["messages"] == json::array({{{"role", "user"}, {"content", "def f"}}}));
  request.prompt_as = "text";
  request.suffix = "return";
  const json completion = body_of(request);
  CHECK(completion["prompt"] == "def f");
  CHECK(completion["suffix"] == "return");
  CHECK(completion["max_tokens"] == 256);
  CHECK_FALSE(completion.contains("messages"));
  CHECK_FALSE(make_remote_request(request, "far", true)->chat);
}

TEST_CASE("what OpenAI's API cannot express keeps a request here, by the field's name") {
  using Change = std::function<void(ipc::GenerateRequest&)>;
  using R = ipc::GenerateRequest;
  const std::vector<std::pair<std::string, Change>> changes = {
      {"raw", [](R& r) { r.raw = true; }},
      {"parse_special", [](R& r) { r.parse_special = true; }},
      {"tool_form", [](R& r) { r.tool_form = "hermes"; }},
      {"template_kwargs", [](R& r) { r.template_kwargs.text = R"({"a":1})"; }},
      {"reasoning", [](R& r) { r.reasoning = "on"; }},
      {"reasoning", [](R& r) { r.reasoning_budget = 5; }},
      {"min_tokens", [](R& r) { r.min_tokens = 1; }},
      {"steps", [](R& r) { r.steps = 1; }},
      {"block_length", [](R& r) { r.block_length = 1; }},
      {"remasking", [](R& r) { r.remasking = "margin"; }},
      {"top_k", [](R& r) { r.top_k = 5; }},
      {"min_p", [](R& r) { r.min_p = 0.1f; }},
      {"typical_p", [](R& r) { r.typical_p = 0.5f; }},
      {"repetition_penalty", [](R& r) { r.repetition_penalty = 1.1f; }},
      {"penalty_window", [](R& r) { r.penalty_window = 64; }},
      {"penalty_window", [](R& r) { r.frequency_penalty = 1; }},
      {"logit_bias",
       [](R& r) {
         r.logit_bias = {{1, 2.0f}};
       }},
      {"stop_ids", [](R& r) { r.stop_ids = {1}; }},
      {"ignore_eos", [](R& r) { r.ignore_eos = true; }},
      {"adapter", [](R& r) { r.adapter = "style"; }},
      {"logprobs", [](R& r) { r.logprobs = 0; }},
      {"prompt_logprobs", [](R& r) { r.prompt_logprobs = true; }},
      {"draft", [](R& r) { r.draft = "small"; }},
      {"cache", [](R& r) { r.cache = "off"; }},
      {"grammar", [](R& r) { r.grammar = "root ::= \"a\""; }},
      {"regex", [](R& r) { r.regex = "a"; }},
  };
  for (const auto& [field, change] : changes) {
    CAPTURE(field);
    ipc::GenerateRequest request = chat();
    REQUIRE(check_portable(request).ok());
    change(request);
    const Result<void> portable = check_portable(request);
    REQUIRE_FALSE(portable.ok());
    CHECK(portable.error().field == field);
    CHECK(portable.error().code == ErrorCode::kUnsupported);
  }
  ipc::GenerateRequest text;
  text.prompt_ids = {1, 2};
  CHECK(check_portable(text).error().field == "prompt_ids");
  text = {};
  text.prompt = "a";
  text.max_tokens = 0;
  CHECK(check_portable(text).error().field == "max_tokens");
  text.max_tokens = 1;
  text.json_schema = "{}";
  CHECK(check_portable(text).error().field == "json_schema");
}

TEST_CASE("messages and tools of other forms keep a request here, too") {
  const auto field_of = [](const ipc::GenerateRequest& request) {
    const Result<RemoteRequest> made = make_remote_request(request, "far", true);
    return made.ok() ? "" : made.error().field;
  };
  CHECK(field_of(chat()).empty());
  CHECK(field_of(chat(R"([{"role":"user","content":"a","images":["x"]}])")) == "messages");
  CHECK(field_of(chat(R"([{"role":"assistant","tool_calls":[{"custom":{}}]}])")) == "messages");
  CHECK(field_of(chat(R"([{"role":"assistant","tool_calls":1}])")) == "messages");
  CHECK(field_of(chat("[1]")) == "messages");
  CHECK(field_of(chat("[")) == "messages");
  ipc::GenerateRequest request = chat();
  request.tools.text = R"([{"type":"function"}])";
  CHECK(field_of(request) == "tools");
  request.tools.text = R"([{"type":"function","function":{"name":"f","parameters":{"properties":)"
                       R"({"input":{"type":"string","lark":"start: \"a\""}}}}}])";
  CHECK(field_of(request) == "tools");
  request.tools.text = {};
  request.json_schema = "[]";
  CHECK(field_of(request) == "json_schema");
}

}  // namespace
}  // namespace hearth::broker
