// Requests of the official Python clients, recorded by record_sdk_requests.py: each is accepted,
// and answered in its API's form.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/e2e/http_client.h"
#include "tests/e2e/tiny_model.h"
#include "tests/paths.h"
#include "tests/sse_events.h"

namespace hearth::e2e {
namespace {

using Json = nlohmann::json;

// In the style of Qwen; it opens the answer's reasoning.
constexpr const char* kTemplate =
    "{% for t in tools or [] %}{{ t.function.name }} {% endfor %}{% for m in messages %}{{ m.role "
    "}} "
    "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %} "
    "{% endfor %}{% if add_generation_prompt %}<think>{% endif %}";

/// What only a daemon can make, by its placeholder.
using Made = std::map<std::string, std::string>;

void put(const Made& made, Json& value) {
  if (value.is_string()) {
    const auto found = made.find(value.get<std::string>());
    if (found != made.end()) value = found->second;
  } else if (value.is_structured()) {
    for (Json& each : value) put(made, each);
  }
}

HttpAnswer ask(const Daemon& daemon, const Json& request) {
  std::string fields = "Host: localhost\r\n";
  for (const auto& [key, value] : request["headers"].items()) {
    // The client adds a content type of its own to a body.
    if (key != "content-type") fields += fmt::format("{}: {}\r\n", key, value.get<std::string>());
  }
  const std::string body = request["body"].is_null() ? "" : request["body"].dump();
  return HttpClient(daemon).ask(request["method"], request["path"], body, fields);
}

Made make(const Daemon& daemon) {
  const auto answer_to = [&daemon](const char* path, const Json& body) {
    const HttpAnswer answer = HttpClient(daemon).ask("POST", path, body.dump());
    REQUIRE_MESSAGE(answer.status == 200, answer.body);
    return Json::parse(answer.body);
  };
  const Json response = answer_to("/v1/responses", {{"model", "tiny"},
                                                    {"input", "the"},
                                                    {"max_output_tokens", 8},
                                                    {"include", {"reasoning.encrypted_content"}}});
  const Json message =
      answer_to("/v1/messages", {{"model", "tiny"},
                                 {"max_tokens", 8},
                                 {"messages", {{{"role", "user"}, {"content", "the"}}}}});
  REQUIRE(response["output"][0]["type"] == "reasoning");
  REQUIRE(message["content"][0]["type"] == "thinking");
  return {{"@sealed@", response["output"][0]["encrypted_content"]},
          {"@thinking@", message["content"][0]["thinking"]},
          {"@signature@", message["content"][0]["signature"]}};
}

void check_stream(const std::string& path, const std::string& body) {
  if (path.starts_with("/api/")) {
    REQUIRE(body.ends_with('\n'));
    size_t lines = 0;
    for (size_t at = 0; at < body.size(); ++lines) {
      const size_t end = body.find('\n', at);
      const Json line = Json::parse(body.substr(at, end - at));
      at = end + 1;
      CHECK(line["done"] == (at == body.size()));
    }
    CHECK(lines > 0);
    return;
  }
  const std::vector<Json> events = tests::sse_events(body);
  REQUIRE(events.size() > 2);
  if (path == "/v1/chat/completions") {
    CHECK(events.back() == "[DONE]");
    CHECK(events.front()["object"] == "chat.completion.chunk");
  } else if (path == "/v1/responses") {
    const std::string last = events.back()["type"];
    CHECK((last == "response.completed" || last == "response.incomplete"));
    CHECK_FALSE(events.back()["response"]["output"].empty());
  } else {
    CHECK(events.back()["type"] == "message_stop");
    CHECK(events.front()["type"] == "message_start");
  }
}

void check_whole(const std::string& path, const Json& body) {
  if (path == "/v1/chat/completions") {
    REQUIRE_FALSE(body["choices"].empty());
    for (const Json& choice : body["choices"]) {
      CHECK(choice["message"]["role"] == "assistant");
      CHECK(choice["finish_reason"].is_string());
    }
    CHECK(body["usage"]["prompt_tokens"] > 0);
  } else if (path == "/v1/responses") {
    CHECK(body["object"] == "response");
    CHECK((body["status"] == "completed" || body["status"] == "incomplete"));
    CHECK_FALSE(body["output"].empty());
  } else if (path.starts_with("/v1/messages/count_tokens")) {
    CHECK(body["input_tokens"] > 0);
  } else if (path.starts_with("/v1/messages")) {
    CHECK(body["type"] == "message");
    CHECK_FALSE(body["content"].empty());
    CHECK(body["stop_reason"].is_string());
  } else if (path == "/v1/embeddings") {
    CHECK(body["data"].size() == 2);
    CHECK(body["data"][0]["embedding"].is_string());  // base64
  } else if (path == "/api/chat") {
    CHECK(body["done"] == true);
    CHECK(body["message"]["role"] == "assistant");
  } else if (path == "/api/generate") {
    CHECK(body["response"].is_string());
  } else if (path == "/api/embed") {
    CHECK(body["embeddings"].size() == 2);
  } else {
    CHECK_FALSE(body.empty());
  }
}

TEST_CASE("recorded requests of the official clients are answered in their form") {
  const Sandbox sandbox;
  write_tiny_model(sandbox.models() / "tiny.gguf", 1, kTemplate);
  const Daemon daemon(sandbox);
  const Made made = make(daemon);
  size_t requests = 0;
  for (const char* client : {"openai", "anthropic", "ollama"}) {
    std::ifstream in(tests::source_path(fmt::format("tests/e2e/sdk_requests/{}.json", client)));
    REQUIRE(in.is_open());
    Json recorded = Json::parse(in);
    for (Json& request : recorded["requests"]) {
      CAPTURE(client);
      CAPTURE(request["name"].get<std::string>());
      const bool has_made = request.dump().find("@sealed@") != std::string::npos ||
                            request.dump().find("\"@signature@\"") != std::string::npos;
      // As a placeholder it is none of this daemon's: refused where nothing else has the text.
      if (has_made) {
        const bool sealed = request["path"] == "/v1/responses";
        CHECK(ask(daemon, request).status == (sealed ? 400 : 200));
      }
      put(made, request["body"]);
      const HttpAnswer answer = ask(daemon, request);
      REQUIRE_MESSAGE(answer.status == 200, answer.body);
      const std::string path = request["path"];
      const bool streams = !request["body"].is_null() && request["body"].value("stream", false);
      streams ? check_stream(path, answer.body) : check_whole(path, Json::parse(answer.body));
      ++requests;
    }
  }
  CHECK(requests == 34);
}

}  // namespace
}  // namespace hearth::e2e
