// Ollama's API: its requests are the daemon's own, its answers lines of JSON.

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "daemon/http/answers/api_answer.h"
#include "daemon/http/requests/api_embeddings.h"
#include "daemon/http/routes.h"
#include "ipc/text/base64.h"
#include "tests/unit/daemon/accepted_call.h"

namespace hearth::http {
namespace {

using Json = nlohmann::json;

Call with_members(Api api, const std::string& members) {
  return accepted(api, R"({"model":"m",)" + members + "}");
}
Error refused(Api api, const std::string& members) {
  const Result<Call> call = parse_call(api, R"({"model":"m",)" + members + "}");
  REQUIRE_FALSE_MESSAGE(call.ok(), members);
  return call.error();
}

TEST_CASE("options are read as the daemon's parameters") {
  const Call call = with_members(Api::kOllamaGenerate, R"("prompt":"a","think":false,"options":{
      "num_ctx":4096,"num_predict":9,"temperature":0.5,"top_k":3,"top_p":0.75,"min_p":0.25,
      "typical_p":0.5,"repeat_penalty":1.5,"repeat_last_n":32,"presence_penalty":0.5,
      "frequency_penalty":0.25,"seed":7,"stop":["x"],"num_gpu":1,"mirostat":0},"keep_alive":"5m")");
  const ipc::GenerateRequest& r = call.request;
  CHECK(call.stream);
  CHECK(r.prompt == "a");
  CHECK(r.prompt_as == "message");
  CHECK(r.max_tokens == 9);
  CHECK(r.clip_max_tokens);
  CHECK(r.temperature == 0.5f);
  CHECK(r.top_k == 3);
  CHECK(r.top_p == 0.75f);
  CHECK(r.min_p == 0.25f);
  CHECK(r.typical_p == 0.5f);
  CHECK(r.repetition_penalty == 1.5f);
  CHECK(r.penalty_window == 32);
  CHECK(r.presence_penalty == 0.5f);
  CHECK(r.frequency_penalty == 0.25f);
  CHECK(r.seed == 7);
  CHECK(r.stop == std::vector<std::string>{"x"});
  CHECK(r.reasoning == "off");
  CHECK(call.ignored == std::vector<std::string_view>{"options.*"});
  CHECK(call.keep_alive_ms == 300'000);
  for (const char* most : {"-1", "-2"}) {
    const std::string options = R"("prompt":"a","options":{"num_predict":)" + std::string(most);
    CHECK(with_members(Api::kOllamaGenerate, options + "}").request.max_tokens == 0);
  }
}

TEST_CASE("prompts, with a system message or raw") {
  const Call with_system = with_members(
      Api::kOllamaGenerate, R"("prompt":"a","system":"s","stream":false,"format":"json")");
  CHECK_FALSE(with_system.stream);
  CHECK(with_system.request.json_schema == R"({"type":"object"})");
  const Json messages = Json::parse(with_system.request.messages.text);
  CHECK(messages[0] == Json{{"role", "system"}, {"content", "s"}});
  CHECK(messages[1]["content"] == "a");
  const Call raw = with_members(Api::kOllamaGenerate, R"("prompt":"<s>a","raw":true)");
  CHECK(raw.request.prompt_as == "text");
  CHECK(raw.request.parse_special);
  CHECK(with_members(Api::kOllamaGenerate, R"("prompt":"")").loads);
  CHECK(with_members(Api::kOllamaChat, R"("messages":[])").loads);
  CHECK(with_members(Api::kOllamaChat, R"("keep_alive":-1)").loads);
  CHECK(with_members(Api::kOllamaChat, R"("keep_alive":0)").releases());
  CHECK_FALSE(with_members(Api::kOllamaChat, R"("keep_alive":1)").releases());
  CHECK_FALSE(with_members(Api::kOllamaGenerate, R"("prompt":"a","keep_alive":0)").releases());
  const Result<Call> latest =
      parse_call(Api::kOllamaGenerate, R"({"model":"a-b:latest","prompt":"x"})");
  CHECK(latest->request.model == "a-b");
}

TEST_CASE("messages with calls and results, and their thinking") {
  const Call call = with_members(Api::kOllamaChat, R"("messages":[{"role":"user","content":"a"},
      {"role":"assistant","content":"","thinking":"t","images":null,"tool_calls":[
        {"function":{"name":"f","arguments":{"x":1}}},
        {"function":{"name":"g","index":1,"arguments":{}}}]},
      {"role":"tool","content":"one","tool_name":"f"},{"role":"tool","content":"two"}],
      "tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}],
      "think":"high","logprobs":true,"top_logprobs":2)");
  const Json messages = Json::parse(call.request.messages.text);
  CHECK(messages[1]["reasoning_content"] == "t");
  CHECK(messages[1]["tool_calls"][0]["function"]["arguments"]["x"] == 1);
  for (const size_t i : {0, 1}) {
    const std::string id = messages[1]["tool_calls"][i]["id"];
    CHECK(id.size() == 9);
    CHECK(messages[2 + i]["tool_call_id"] == id);
  }
  CHECK(messages[2]["name"] == "f");
  CHECK(call.request.reasoning == "on");
  CHECK(call.request.reasoning_budget == 24576);
  CHECK(call.request.logprobs == 2);
  CHECK(Json::parse(call.request.tools.text)[0]["function"]["name"] == "f");
}

TEST_CASE("what is not supported is refused by name") {
  const std::pair<std::string, const char*> generate[] = {
      {R"("prompt":"a","suffix":"b","system":"s")", "system"},
      {R"("prompt":"a","images":["aGk="])", "images"},
      {R"("prompt":"a","context":[1,2])", "context"},
      {R"("prompt":"a","template":"{{ .Prompt }}")", "template"},
      {R"("prompt":"a","raw":true,"system":"s")", "system"},
      {R"("prompt":"a","options":7)", "options"},
      {R"("prompt":"a","options":{"mirostat":1})", "options.mirostat"},
      {R"("prompt":"a","options":{"nonesuch":1})", "options.nonesuch"},
      {R"("prompt":"a","options":{"temperature":"hot"})", "options.temperature"},
      {R"("prompt":"a","options":{"num_predict":0})", "options.num_predict"},
      {R"("prompt":"a","options":{"top_k":-7})", "options.top_k"},
      {R"("prompt":"a","format":"xml")", "format"},
      {R"("prompt":"a","think":7)", "think"},
      {R"("prompt":"a","think":"much")", "think"},
      {R"("prompt":"a","max_tokens":5)", "max_tokens"},
      {R"("prompt":7)", "prompt"},
      {R"("messages":[])", "messages"},
      {R"("prompt":"a","top_logprobs":2)", "top_logprobs"},
  };
  for (const auto& [members, field] : generate) {
    CHECK_MESSAGE(refused(Api::kOllamaGenerate, members).field == field, members);
  }
  const std::string hi = R"("messages":[{"role":"user","content":"a")";
  CHECK(refused(Api::kOllamaChat, hi + R"(,"images":["aGk="]}])").field == "messages[0].images");
  CHECK(refused(Api::kOllamaChat, hi + R"(,"thoughts":"t"}])").field == "messages[0].thoughts");
  CHECK(refused(Api::kOllamaChat, hi + R"(}],"prompt":"a")").field == "prompt");
  CHECK(parse_call(Api::kOllamaChat, R"({"messages":[]})").error().field == "model");
  CHECK(parse_call(Api::kOllamaChat, "[]").error().code == ErrorCode::kProtocol);
  CHECK_FALSE(parse_ollama_name(R"({"model":7})").ok());
  CHECK_FALSE(parse_ollama_name(R"({"model":"a","system":"s"})").ok());
  CHECK(*parse_ollama_name(R"({"name":"a:latest"})") == "a");
}

/// The lines of an answer with reasoning, text and a call.
std::string answered(const Call& call) {
  const auto writer = make_answer_writer(call, "i-1", 1'764'058'200);
  std::string out;
  writer->started({.model = "m"}, &out);
  writer->reasoning(0, "Hm", &out);
  writer->delta(0, "Let \"me\"", "", &out);
  writer->delta(0, "", "", &out);
  writer->call(0, {.index = 0, .id = "a", .name = "f"}, &out);
  writer->arguments(0, R"({"x":)", &out);
  writer->arguments(0, "1}", &out);
  writer->sample_done({.sample = 0, .reason = "tool_calls"}, &out);
  ipc::DoneEvent done;
  done.model = "m";
  done.usage = {.prompt_tokens = 5, .output_tokens = 3};
  done.timings = {.prefill_ms = 1.5, .tpot_ms = 2, .total_ms = 9.25};
  writer->done(done, &out);
  return out;
}

TEST_CASE("answers, whole and as lines") {
  Call call = with_members(Api::kOllamaChat, R"("messages":[{"role":"user","content":"a"}])");
  std::vector<Json> lines;
  std::string text = answered(call);
  while (!text.empty()) {
    const size_t end = text.find('\n');
    REQUIRE(end != std::string::npos);
    lines.push_back(Json::parse(text.substr(0, end)));
    text.erase(0, end + 1);
  }
  REQUIRE(lines.size() == 4);
  for (const Json& line : lines) {
    CHECK(line["model"] == "m");
    CHECK(line["created_at"] == "2025-11-25T08:10:00Z");
    CHECK(line["message"]["role"] == "assistant");
    CHECK(line["done"] == (line == lines.back()));
  }
  CHECK(lines[0]["message"]["thinking"] == "Hm");
  CHECK(lines[1]["message"]["content"] == "Let \"me\"");
  CHECK(lines[2]["message"]["tool_calls"] ==
        Json::parse(R"([{"function":{"name":"f","arguments":{"x":1}}}])"));
  CHECK(lines[3]["done_reason"] == "stop");
  CHECK(lines[3]["prompt_eval_count"] == 5);
  CHECK(lines[3]["eval_count"] == 3);
  CHECK(lines[3]["total_duration"] == 9'250'000);
  CHECK(lines[3]["prompt_eval_duration"] == 1'500'000);
  CHECK(lines[3]["eval_duration"] == 4'000'000);
  CHECK_FALSE(lines[3].contains("load_duration"));

  call.stream = false;
  const Json whole = Json::parse(answered(call));
  CHECK(whole["message"]["thinking"] == "Hm");
  CHECK(whole["message"]["content"] == "Let \"me\"");
  CHECK(whole["message"]["tool_calls"] == lines[2]["message"]["tool_calls"]);
  CHECK(whole["done"] == true);

  const Call generate = with_members(Api::kOllamaGenerate, R"("prompt":"a","stream":false)");
  const Json body = Json::parse(answered(generate));
  CHECK(body["response"] == "Let \"me\"");
  CHECK(body["thinking"] == "Hm");
  std::string failed;
  make_answer_writer(
      with_members(Api::kOllamaChat, R"("messages":[{"role":"user","content":"a"}])"), "i", 0)
      ->failed(Error::lost("gone"), &failed);
  CHECK(failed == "{\"error\":\"gone\"}\n");
  CHECK(error_body(Api::kOllamaChat, 404, Error::not_found("no")) == R"({"error":"no"})");
  CHECK(Json::parse(ollama_loaded_body(Api::kOllamaGenerate, "m", 0))["done_reason"] == "load");
}

TEST_CASE("vectors in both forms") {
  const auto call = parse_ollama_embed(false, R"({"model":"m","input":["a","b"],"truncate":true,
      "options":{"num_ctx":9},"keep_alive":"5m"})");
  REQUIRE_MESSAGE(call.ok(), (call.ok() ? "" : call.error().message));
  CHECK(call->request.texts.size() == 2);
  CHECK(call->request.normalize);
  CHECK(call->ignored == std::vector<std::string_view>{"options.*", "truncate"});
  CHECK(call->keep_alive_ms == 300'000);
  const auto legacy = parse_ollama_embed(true, R"({"model":"m","prompt":"a"})");
  REQUIRE(legacy.ok());
  CHECK_FALSE(legacy->request.normalize);
  for (const char* bad : {R"({"model":"m"})", R"({"model":"m","input":7})",
                          R"({"model":"m","input":[7]})", R"({"model":"m","input":[]})"}) {
    CHECK_MESSAGE(parse_ollama_embed(false, bad).error().field == "input", bad);
  }
  CHECK(parse_ollama_embed(true, R"({"model":"m","prompt":["a"]})").error().field == "prompt");
  ipc::EmbedReply reply;
  reply.model = "m";
  reply.prompt_tokens = {2};
  reply.vectors.push_back(ipc::base64_of_floats(std::vector<float>{0.5f}));
  CHECK(Json::parse(vectors_body(reply, {.ollama = OllamaVectors::kOne}).value()) ==
        Json::parse(R"({"embedding":[0.5]})"));
  CHECK(Json::parse(vectors_body(reply, {.ollama = OllamaVectors::kList}).value()) ==
        Json::parse(R"({"model":"m","embeddings":[[0.5]],"prompt_eval_count":2})"));
}

TEST_CASE("lists of models") {
  ipc::ModelsReply reply;
  ipc::ModelEntry entry;
  entry.name = "m";
  entry.state = "resident";
  entry.roles = {"default"};
  entry.architecture = "llama";
  entry.file_type = "Q4_1";
  entry.file_bytes = 100;
  entry.num_parameters = 134'500'000;
  entry.context_length = 64;
  entry.memory_bytes = 300;
  entry.device = "cpu";
  entry.abilities = {"text", "tools"};
  entry.keep_alive_ms = 60'000;
  entry.idle_ms = 10'000;
  reply.models.push_back(entry);
  ipc::ModelEntry other;
  other.name = "n";
  other.state = "found";
  reply.models.push_back(other);
  const Json tags = Json::parse(ollama_tags_body(reply));
  REQUIRE(tags["models"].size() == 2);
  CHECK(tags["models"][0]["details"]["quantization_level"] == "Q4_1");
  CHECK(tags["models"][0]["details"]["parameter_size"] == "134.50M");
  const Json ps = Json::parse(ollama_ps_body(reply, 0));
  REQUIRE(ps["models"].size() == 1);
  CHECK(ps["models"][0]["size"] == 300);
  CHECK(ps["models"][0]["size_vram"] == 0);
  CHECK(ps["models"][0]["expires_at"] == "1970-01-01T00:00:50Z");
  const Json show = Json::parse(ollama_show_body(reply, "default"));
  CHECK(show["model_info"]["llama.context_length"] == 64);
  CHECK(show["capabilities"] == Json::array({"completion", "tools"}));
  CHECK(ollama_show_body(reply, "nonesuch").empty());
}

TEST_CASE("paths that change files are refused with what to use here") {
  Rules rules;
  rules.hosts = HostRules::of_unix_socket({});
  const auto answer = [&rules](const std::string& method, const std::string& path) {
    HttpRequest head;
    head.method = method;
    head.target = path;
    head.hosts = {"localhost"};
    head.content_types = {"application/json"};
    Route out;
    const auto refusal = route(rules, head, &out);
    CHECK((out.api == Api::kOllamaChat || out.api == Api::kOllamaGenerate));
    return refusal;
  };
  for (const char* path : {"/api/pull", "/api/create", "/api/delete", "/api/copy", "/api/push",
                           "/api/blobs/sha256:0"}) {
    CHECK(answer("POST", path)->status == 501);
    CHECK(answer("DELETE", path)->status == 501);
  }
  CHECK(answer("POST", "/api/pull")->message.find("hearth pull") != std::string::npos);
  CHECK(answer("POST", "/api/nonesuch")->status == 404);
  CHECK_FALSE(answer("POST", "/api/chat/"));
  CHECK_FALSE(answer("GET", "/api/tags"));
  CHECK(answer("GET", "/api/chat")->status == 405);
}

TEST_CASE("keep_alive is a number of seconds or a time with units") {
  const auto ms = [](const std::string& value) {
    return with_members(Api::kOllamaGenerate, R"("prompt":"a","keep_alive":)" + value)
        .keep_alive_ms;
  };
  CHECK_FALSE(ms("null"));
  CHECK(ms("0") == 0);
  CHECK(ms("30") == 30'000);
  CHECK(ms("0.5") == 500);
  CHECK(ms("1e-9") == 1);  // not 0, which means something else
  CHECK(ms("-1") == -1);
  CHECK(ms("1e300") == 1'000'000'000'000);
  CHECK(ms(R"("0")") == 0);
  CHECK(ms(R"("0s")") == 0);
  CHECK(ms(R"("-1")") == -1);
  CHECK(ms(R"("-1m")") == -1);
  CHECK(ms(R"("3600")") == 3'600'000);
  CHECK(ms(R"("5m")") == 300'000);
  CHECK(ms(R"("1h30m")") == 5'400'000);
  CHECK(ms(R"("1.5h")") == 5'400'000);
  CHECK(ms(R"("250ms")") == 250);
  CHECK(ms(R"("1500us")") == 2);
  CHECK(ms(R"("1\u00b5s")") == 1);
  for (const char* bad : {R"("")", R"("-")", R"("m")", R"("5x")", R"("5m3")", R"("5 m")",
                          R"("1e3s")", R"("inf")", R"("--1")", "true", "[]", "{}"}) {
    CAPTURE(bad);
    CHECK(refused(Api::kOllamaGenerate, std::string(R"("prompt":"a","keep_alive":)") + bad).field ==
          "keep_alive");
  }
  CHECK(parse_ollama_embed(false, R"({"model":"m","input":"a","keep_alive":"x"})").error().field ==
        "keep_alive");
}

}  // namespace
}  // namespace hearth::http
