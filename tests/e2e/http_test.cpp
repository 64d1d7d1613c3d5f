// The HTTP server of the real daemon, byte by byte.

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "ipc/text/base64.h"
#include "tests/e2e/http_client.h"
#include "tests/e2e/other_answer.h"
#include "tests/e2e/tiny_model.h"
#include "tests/paths.h"
#include "tests/skip.h"
#include "tests/sse_events.h"

namespace hearth::e2e {
namespace {

using Json = nlohmann::json;

/// As seeded(), in that API's form.
std::string completion(uint64_t seed, int tokens, const std::string& more = {}) {
  return fmt::format(
      R"({{"model":"tiny","prompt":"the","max_tokens":{},"seed":{},"ignore_eos":true{}}})", tokens,
      seed, more);
}
ipc::GenerateRequest same(uint64_t seed, int32_t tokens) {
  ipc::GenerateRequest request = seeded(seed, tokens);
  request.model = "tiny";
  // Fields that HTTP requests here omit, too: the model's defaults.
  request.temperature.reset();
  request.top_k.reset();
  request.top_p.reset();
  return request;
}

std::string text_of_stream(const std::string& stream, std::string* reason) {
  std::string text;
  const std::vector<Json> events = tests::sse_events(stream);
  REQUIRE_FALSE(events.empty());
  CHECK(events.back() == "[DONE]");
  for (const Json& event : events) {
    if (!event.is_object() || event["choices"].empty()) continue;
    text += event["choices"][0]["text"].get<std::string>();
    if (event["choices"][0]["finish_reason"].is_string()) {
      *reason = event["choices"][0]["finish_reason"];
    }
  }
  return text;
}

/// The Python of the virtual environment made by clients.sh; empty if it could not be made.
std::filesystem::path clients_python(const std::filesystem::path& log) {
  const pid_t pid =
      start_program({"/bin/bash", hearth::tests::source_path("tests/e2e/clients.sh")}, log);
  REQUIRE(wait_for_exit(pid, 10 * kPatienceMs) == 0);
  std::ifstream in(log);
  std::string line;
  std::getline(in, line);
  return line.starts_with('/') ? line : "";
}

uint16_t tcp_port(const Sandbox& sandbox) {
  const std::string log = text_of(sandbox.path() / "log");
  const size_t at = log.rfind("tcp_port=");
  REQUIRE(at != std::string::npos);
  return static_cast<uint16_t>(std::stoi(log.substr(at + 9)));
}

TEST_CASE("HTTP gives the same text as the socket, whole and streamed") {
  const Sandbox sandbox;
  const Daemon daemon(sandbox);
  ipc::Client client = daemon.connect();
  const Answer plain = run(client, same(5, 40));
  REQUIRE_MESSAGE(plain.done.has_value(), why(plain));

  HttpClient http(daemon);
  const HttpAnswer whole = http.ask("POST", "/v1/completions", completion(5, 40));
  REQUIRE_MESSAGE(whole.status == 200, whole.body);
  CHECK(whole.fields.at("content-type") == "application/json");
  const Json body = Json::parse(whole.body);
  CHECK(body["choices"][0]["text"] == plain.texts.at(0));
  CHECK(body["choices"][0]["finish_reason"] == "length");
  CHECK(body["model"] == "tiny");
  CHECK(body["usage"]["completion_tokens"] == 40);
  CHECK(body["usage"]["prompt_tokens"] == plain.done->usage.prompt_tokens);

  const HttpAnswer streamed =
      http.ask("POST", "/v1/completions",
               completion(5, 40, R"(,"stream":true,"stream_options":{"include_usage":true})"));
  REQUIRE_MESSAGE(streamed.status == 200, streamed.body);
  CHECK(streamed.fields.at("content-type").starts_with("text/event-stream"));
  std::string reason;
  CHECK(text_of_stream(streamed.body, &reason) == plain.texts.at(0));
  CHECK(reason == "length");

  // Without chunks, which HTTP/1.0 does not have.
  HttpClient old(daemon);
  const std::string request = completion(5, 40, R"(,"stream":true)");
  old.send(
      fmt::format("POST /v1/completions HTTP/1.0\r\nHost: localhost\r\n"
                  "Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{}",
                  request.size(), request));
  const std::string all = old.read(1 << 20);
  const size_t head = all.find("\r\n\r\n");
  REQUIRE(head != std::string::npos);
  CHECK(text_of_stream(all.substr(head + 4), &reason) == plain.texts.at(0));

  const Json two = Json::parse(
      http.ask("POST", "/v1/completions", completion(5, 10, R"(,"n":2,"logprobs":2)")).body);
  REQUIRE(two["choices"].size() == 2);
  CHECK(two["choices"][1]["logprobs"]["tokens"].size() == 10);
  CHECK(two["choices"][1]["logprobs"]["top_logprobs"][0].size() == 2);
}

TEST_CASE("conversations are rendered by the model's own template, in every API") {
  const Sandbox sandbox;
  write_tiny_model(sandbox.models() / "tiny.gguf", 1,
                   "{% for m in messages %}{{ m.role }} {{ m.content }} {% endfor %}");
  const Daemon daemon(sandbox);
  ipc::Client client = daemon.connect();
  ipc::GenerateRequest request = same(5, 30);
  request.prompt = "system be user the assistant a user abc ";
  const Answer plain = run(client, request);
  REQUIRE_MESSAGE(plain.done.has_value(), why(plain));
  request.prompt.clear();
  request.messages.text = R"([{"role":"system","content":"be"},{"role":"user","content":"the"},)"
                          R"({"role":"assistant","content":"a"},{"role":"user","content":"abc"}])";
  const Answer chat = run(client, request);
  REQUIRE_MESSAGE(chat.done.has_value(), why(chat));
  CHECK(chat.ids.at(0) == plain.ids.at(0));

  HttpClient http(daemon);
  const std::string ask =
      R"({"model":"tiny","seed":5,"ignore_eos":true,"max_tokens":30,"messages":)" +
      request.messages.text;
  const HttpAnswer whole = http.ask("POST", "/v1/chat/completions", ask + "}");
  REQUIRE_MESSAGE(whole.status == 200, whole.body);
  CHECK(Json::parse(whole.body)["choices"][0]["message"]["content"] == plain.texts.at(0));
  const HttpAnswer streamed = http.ask("POST", "/v1/chat/completions", ask + R"(,"stream":true})");
  std::string text;
  for (const Json& event : tests::sse_events(streamed.body)) {
    if (event.is_object()) text += event["choices"][0]["delta"].value("content", "");
  }
  CHECK(text == plain.texts.at(0));

  // These two have no seed: their answers need only exist and be counted.
  const HttpAnswer response =
      http.ask("POST", "/v1/responses", R"({"model":"tiny","input":"abc","max_output_tokens":7})");
  REQUIRE_MESSAGE(response.status == 200, response.body);
  CHECK(Json::parse(response.body)["usage"]["output_tokens"] <= 7);
  const HttpAnswer message =
      http.ask("POST", "/v1/messages",
               R"({"model":"tiny","max_tokens":7,"system":"be","stream":true,)"
               R"("messages":[{"role":"user","content":"the"}]})");
  REQUIRE_MESSAGE(message.status == 200, message.body);
  CHECK(message.body.starts_with("event: message_start\n"));
  CHECK(message.body.find("event: message_stop\n") != std::string::npos);
}

TEST_CASE("models, health, metrics and tokens over HTTP") {
  const Sandbox sandbox;
  const Daemon daemon(sandbox);
  HttpClient http(daemon);
  const Json models = Json::parse(http.ask("GET", "/v1/models").body);
  CHECK(models["data"][0]["id"] == "tiny");
  CHECK(Json::parse(http.ask("GET", "/v1/models/tiny").body)["id"] == "tiny");
  CHECK(http.ask("GET", "/v1/models/other").status == 404);
  CHECK(Json::parse(http.ask("GET", "/health").body)["status"] == "ok");
  const Json tokens =
      Json::parse(http.ask("POST", "/tokenize", R"({"model":"tiny","text":"the abc"})").body);
  CHECK(tokens["count"] == tokens["ids"].size());
  CHECK(tokens["ids"].size() > 1);
  const HttpAnswer metrics = http.ask("GET", "/metrics");
  CHECK(metrics.fields.at("content-type").starts_with("text/plain"));
  CHECK(metrics.body.find("\nhearth_requests_total 1\n") != std::string::npos);
}

TEST_CASE("embeddings over HTTP: as numbers and in base64, of texts and of their tokens") {
  const Sandbox sandbox;
  const Daemon daemon(sandbox);
  HttpClient http(daemon);
  const HttpAnswer cut =
      http.ask("POST", "/v1/embeddings", R"({"model":"tiny","input":"the","dimensions":8})");
  CHECK(cut.status == 400);
  CHECK(Json::parse(cut.body)["error"]["param"] == "dimensions");
  // The file does not give its pooling: the mean.
  const HttpAnswer plain = http.ask(
      "POST", "/v1/embeddings", R"({"model":"tiny","input":["the abc","the"],"dimensions":64})");
  const HttpAnswer numbers = http.ask(
      "POST", "/v1/embeddings", R"({"model":"tiny","input":["the abc","the"],"pooling":"mean"})");
  REQUIRE_MESSAGE(numbers.status == 200, numbers.body);
  CHECK(plain.body == numbers.body);
  const Json list = Json::parse(numbers.body);
  REQUIRE(list["data"].size() == 2);
  const auto first = list["data"][0]["embedding"].get<std::vector<float>>();
  CHECK(first.size() == 64);
  CHECK(list["data"][1]["index"] == 1);
  const Json ids = Json::parse(
      http.ask("POST", "/tokenize", R"({"model":"tiny","text":"the abc"})").body)["ids"];
  const Json asked = {
      {"model", "tiny"}, {"input", ids}, {"pooling", "mean"}, {"encoding_format", "base64"}};
  const Json coded = Json::parse(http.ask("POST", "/v1/embeddings", asked.dump()).body);
  const auto same = ipc::floats_of_base64(coded["data"][0]["embedding"].get<std::string>());
  REQUIRE(same);
  CHECK(*same == first);
  CHECK(coded["usage"]["prompt_tokens"] == ids.size());
  CHECK(http.ask("POST", "/v1/embeddings", R"({"model":"tiny","input":[999999],"pooling":"mean"})")
            .status == 400);
}

TEST_CASE("prompt logprobs over HTTP equal those of drawing the prompt") {
  const Sandbox sandbox;
  const Daemon daemon(sandbox);
  HttpClient http(daemon);
  const Json whole = Json::parse(
      http.ask("POST", "/v1/completions",
               R"({"model":"tiny","prompt":"the","max_tokens":12,"seed":5,"logprobs":2,)"
               R"("ignore_eos":true,"echo":true})")
          .body);
  const Json& choice = whole["choices"][0];
  CHECK(choice["text"].get<std::string>().starts_with("the"));
  const Json ids =
      Json::parse(http.ask("POST", "/tokenize", R"({"model":"tiny","text":"the"})").body)["ids"];
  const size_t prompt = ids.size();
  REQUIRE(choice["logprobs"]["token_logprobs"].size() == prompt + 12);
  CHECK(choice["logprobs"]["token_logprobs"][0].is_null());
  for (size_t i = 1; i < prompt + 12; ++i) {
    CHECK(choice["logprobs"]["token_logprobs"][i].get<double>() < 0);
    CHECK(choice["logprobs"]["top_logprobs"][i].size() == 2);
  }
  const Json plain = Json::parse(
      http.ask("POST", "/v1/completions",
               R"({"model":"tiny","prompt":"the","max_tokens":1,"prompt_logprobs":true})")
          .body);
  const Json& listed = plain["choices"][0]["prompt_logprobs"];
  REQUIRE(listed.size() == prompt);
  for (size_t i = 1; i < prompt; ++i) CHECK(listed[i] == choice["logprobs"]["token_logprobs"][i]);
}

TEST_CASE("invalid requests get an error, and the connection stays usable") {
  const Sandbox sandbox;
  const Daemon daemon(sandbox);
  HttpClient http(daemon);
  struct Case {
    std::string body;
    int status;
    const char* param;
    const char* code;
  };
  const Case cases[] = {
      {R"({"model":"tiny","prompt":"a","echo":true,"stream":true})", 400, "echo", "unsupported"},
      {R"({"model":"tiny","prompt":"a","nonesuch":1})", 400, "nonesuch", "unknown_field"},
      {R"({"model":"nonesuch","prompt":"a"})", 404, nullptr, "model_not_found"},
      {R"({"model":"../x","prompt":"a"})", 403, "model", "forbidden"},
      {R"({"model":"tiny","prompt":"a","max_tokens":100000})", 400, "max_tokens",
       "context_length_exceeded"},
      {R"({"model":"tiny","prompt":"a","logit_bias":{"999999":1}})", 400, "logit_bias",
       "invalid_argument"},
      {"{", 400, nullptr, "protocol"},
  };
  for (const Case& each : cases) {
    const HttpAnswer answer = http.ask("POST", "/v1/completions", each.body);
    CHECK_MESSAGE(answer.status == each.status, answer.body);
    const Json error = Json::parse(answer.body)["error"];
    if (each.param != nullptr) CHECK_MESSAGE(error["param"] == each.param, answer.body);
    CHECK_MESSAGE(error["code"] == each.code, answer.body);
  }
  const HttpAnswer anthropic = http.ask("POST", "/v1/messages", R"({"messages":[]})");
  CHECK(anthropic.status == 400);
  CHECK(Json::parse(anthropic.body)["type"] == "error");
  CHECK(http.ask("POST", "/v1/completions", completion(1, 3)).status == 200);
}

constexpr std::string_view kPostHead =
    "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
    "Content-Type: application/json\r\n";

TEST_CASE("malformed and hostile bytes get their status and disturb no other client") {
  const Sandbox sandbox;
  const Daemon daemon(sandbox);
  HttpClient other(daemon);
  other.send(post("/v1/completions", completion(9, 150, R"(,"stream":true)")));

  const std::string head(kPostHead);
  struct Case {
    std::string bytes;
    int status;
  };
  const Case cases[] = {
      {"hello\r\n\r\n", 400},
      {"GET /health HTTP/1.1\r\n\r\n", 400},
      {"GET /health HTTP/1.1\nHost: localhost\n\n", 400},
      {"GET /health HTTP/1.1\r\nHost: localhost\nX: y\r\n\r\n", 400},
      {"GET /health HTTP/1.1\r\nHost: localhost\r\n\n", 400},
      {"GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421},
      {"GET /health HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\n\r\n", 403},
      {"GET ftp://localhost/health HTTP/1.1\r\nHost: localhost\r\n\r\n", 400},
      {"GET /" + std::string(20000, 'a') + " HTTP/1.1\r\nHost: localhost\r\n\r\n", 431},
      {head + "X: " + std::string(20000, 'a') + "\r\n\r\n", 431},
      {head + "Content-Length: 99999999999\r\n\r\n", 413},
      {head + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n", 400},
      {head + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
      {head + "Transfer-Encoding: gzip\r\n\r\n", 501},
      {head + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n", 413},
      {head + "Transfer-Encoding: chunked\r\n\r\nxyz\r\n", 400},
      {head + "Transfer-Encoding: chunked\r\n\r\n2\r\nabcdef", 400},
      {"PUT /v1/completions HTTP/1.1\r\nHost: localhost\r\n\r\n", 405},
      {"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n"
       "Content-Length: 2\r\n\r\n{}",
       415},
  };
  for (const Case& each : cases) {
    HttpClient http(daemon);
    http.send(each.bytes);
    const std::optional<HttpAnswer> answer = http.receive();
    REQUIRE_MESSAGE(answer.has_value(), each.bytes.substr(0, 100));
    CHECK_MESSAGE(answer->status == each.status, each.bytes.substr(0, 100));
    CHECK(Json::parse(answer->body).contains("error"));
  }
  // A body that comes in many small chunks, after "100 Continue".
  HttpClient slow(daemon);
  slow.send(head + "Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n");
  CHECK(slow.read(25) == "HTTP/1.1 100 Continue\r\n\r\n");
  const std::string body = completion(1, 3);
  for (const char c : body) slow.send(fmt::format("1\r\n{}\r\n", c));
  slow.send("0\r\n\r\n");
  CHECK(slow.receive()->status == 200);

  const std::optional<HttpAnswer> undisturbed = other.receive();
  REQUIRE(undisturbed.has_value());
  std::string reason;
  const std::string text = text_of_stream(undisturbed->body, &reason);
  ipc::Client client = daemon.connect();
  CHECK(text == run(client, same(9, 150)).texts.at(0));
}

TEST_CASE("a request that never ends gets 408 after its timeout") {
  const Sandbox sandbox;
  const Daemon daemon(sandbox, {"http.header_timeout_ms=300", "http.body_timeout_ms=300"});
  const std::string head(kPostHead);
  for (const std::string& bytes : {std::string("GET /he"), head + "Content-Length: 10\r\n\r\n{",
                                   head + "Transfer-Encoding: chunked\r\n\r\n"}) {
    CAPTURE(bytes);
    HttpClient http(daemon);
    http.send(bytes);
    const std::optional<HttpAnswer> answer = http.receive();
    REQUIRE(answer.has_value());
    CHECK(answer->status == 408);
    CHECK(Json::parse(answer->body).contains("error"));
  }
}

TEST_CASE("Ollama's keep_alive unloads a model that one user has, and no other") {
  const Sandbox sandbox;
  const Daemon daemon(sandbox, {}, Company::kAlone);
  HttpClient http(daemon);
  const auto ask = [](const char* members) {
    return std::string(R"({"model":"tiny","stream":false,"options":{"num_predict":2},)") + members +
           "}";
  };
  const auto stays = [&http] {
    return !Json::parse(http.ask("GET", "/api/ps").body)["models"].empty();
  };
  const HttpAnswer once =
      http.ask("POST", "/api/generate", ask(R"("prompt":"the","keep_alive":0)"));
  REQUIRE_MESSAGE(once.status == 200, once.body);
  CHECK(once.fields.count("x-hearth-ignored") == 0);
  CHECK(eventually([&] { return !stays(); }));
  // Nothing is loaded in order to be unloaded.
  const HttpAnswer absent = http.ask("POST", "/api/generate", ask(R"("keep_alive":"0s")"));
  CHECK(absent.status == 200);
  CHECK(Json::parse(absent.body)["done_reason"] == "unload");
  CHECK_FALSE(stays());
  REQUIRE(http.ask("POST", "/api/generate", ask(R"("prompt":"the","keep_alive":"1h")")).status ==
          200);
  CHECK(stays());
  if (::geteuid() == 0) {
    CHECK(answer_to_other(sandbox, daemon, "POST", "/api/generate", ask(R"("prompt":"a")"))
              .starts_with("200 "));
    const HttpAnswer denied =
        http.ask("POST", "/api/generate", ask(R"("prompt":"the","keep_alive":0)"));
    CHECK(denied.fields.at("x-hearth-ignored") == "keep_alive");
    CHECK(http.ask("POST", "/api/generate", ask(R"("keep_alive":0)")).status == 403);
    CHECK(stays());
  } else {
    CHECK(http.ask("POST", "/api/chat", ask(R"("keep_alive":0)")).status == 200);
    CHECK(eventually([&] { return !stays(); }));
  }
}

TEST_CASE("pipelined requests are answered in order") {
  const Sandbox sandbox;
  const Daemon daemon(sandbox);
  HttpClient http(daemon);
  http.send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" +
            post("/v1/completions", completion(1, 5)) +
            "GET /nonesuch HTTP/1.1\r\nHost: localhost\r\n\r\n" +
            post("/v1/completions", completion(2, 5, R"(,"stream":true)")) +
            "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" +
            "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
  CHECK(Json::parse(http.receive()->body)["status"] == "ok");
  CHECK(Json::parse(http.receive()->body)["object"] == "text_completion");
  CHECK(http.receive()->status == 404);
  CHECK(http.receive()->body.ends_with("data: [DONE]\n\n"));
  CHECK(http.receive()->fields.at("connection") == "close");
  CHECK(http.ended());
}

TEST_CASE("when a client disconnects its request is cancelled") {
  const Sandbox sandbox;
  const Daemon daemon(sandbox, {"worker.speculation=off"});
  // Long enough not to end by itself meanwhile.
  constexpr int kTokens = kTinyContext - 100;
  {
    HttpClient http(daemon);
    http.send(post("/v1/completions", completion(3, kTokens, R"(,"stream":true)")));
    CHECK(http.read(8) == "HTTP/1.1");
  }
  {
    HttpClient whole(daemon);
    whole.send(post("/v1/completions", completion(4, kTokens)));
    REQUIRE(eventually([&] { return daemon.stats().requests_total == 2; }));
  }
  CHECK(daemon.wait_until_idle());
  const ipc::StatsReply stats = daemon.stats();
  CHECK(stats.requests_cancelled == 2);
  CHECK(stats.requests_done == 0);
}

TEST_CASE("a client that stops reading loses its own answer; others are answered meanwhile") {
  // Several times limits.output_buffer_bytes, as events and as lines.
  const std::string streams[] = {
      post("/v1/completions", completion(3, 900, R"(,"stream":true,"n":16,"logprobs":20)")),
      post("/api/generate",
           R"({"model":"tiny","prompt":"the","logprobs":true,"top_logprobs":20,)"
           R"("format":{"type":"string","minLength":4000},"options":{"seed":3}})")};
  for (const std::string& stream : streams) {
    CAPTURE(stream);
    const Sandbox sandbox;
    const Daemon daemon(sandbox, {"worker.speculation=off"}, Company::kAlone);
    HttpClient stalled(daemon, 4096);
    stalled.send(stream);
    CHECK(stalled.read(8) == "HTTP/1.1");
    HttpClient http(daemon);
    for (uint64_t i = 0; i < 3; ++i) {
      CHECK(http.ask("POST", "/v1/completions", completion(i, 10)).status == 200);
    }
    CHECK(daemon.wait_until_idle());
    const ipc::StatsReply stats = daemon.stats();
    CHECK(stats.requests_done == 3);
    CHECK(stats.requests_cancelled + stats.requests_failed == 1);
    // What had been sent before, and no end.
    const std::string rest = stalled.read(size_t{64} << 20);
    CHECK(rest.size() < size_t{8} << 20);
    CHECK(rest.find("[DONE]") == std::string::npos);
    CHECK(rest.find("done_reason") == std::string::npos);
    CHECK(http.ask("GET", "/health").status == 200);
  }
}

TEST_CASE("after some wrong keys further ones wait, and so does a right one") {
  const Sandbox sandbox;
  const std::filesystem::path keys = sandbox.path() / "keys";
  std::ofstream(keys) << "me all 0123456789abcdef\n";
  REQUIRE(::chmod(keys.c_str(), 0600) == 0);
  const Daemon daemon(sandbox, {"http.listen=127.0.0.1:0", "http.keys_file=" + keys.string()});
  const uint16_t port = tcp_port(sandbox);
  HttpClient http(port);
  const auto status = [&](const std::string& key) {
    return http
        .ask("GET", "/v1/models", "",
             fmt::format("Host: 127.0.0.1:{}\r\nx-api-key: {}\r\n", port, key))
        .status;
  };
  std::map<int, int> met;
  for (int i = 0; i < 200; ++i) ++met[status(fmt::format("0123456789abcde-{}", i))];
  CHECK(met.size() == 2);
  CHECK(met[401] >= 5);
  CHECK(met[401] < 100);
  CHECK(met[429] > 100);
  // Without keys the same address is answered at once, and the right key after the wait.
  CHECK(http.ask("GET", "/health", "", fmt::format("Host: 127.0.0.1:{}\r\n", port)).status == 200);
  CHECK(eventually([&] { return status("0123456789abcdef") == 200; }, 100));
}

TEST_CASE("TCP admits the daemon's own user and holders of keys") {
  const Sandbox sandbox;
  {
    const Daemon daemon(sandbox, {"http.listen=127.0.0.1:0"});
    const uint16_t port = tcp_port(sandbox);
    HttpClient http(port);
    CHECK(http.ask("GET", "/v1/models", "", fmt::format("Host: localhost:{}\r\n", port)).status ==
          200);
    CHECK(http.ask("GET", "/v1/models", "", "Host: localhost\r\n").status == 421);
  }
  const std::filesystem::path keys = sandbox.path() / "keys";
  std::ofstream(keys) << "me all 0123456789abcdef\nscraper metrics fedcba9876543210\n";
  REQUIRE(::chmod(keys.c_str(), 0600) == 0);
  const Daemon daemon(
      sandbox, {"http.listen=127.0.0.1:0", "http.keys_file=" + keys.string(),
                "http.allowed_origins=[\"http://localhost:3000\"]", "server.log_level=debug"});
  const uint16_t port = tcp_port(sandbox);
  HttpClient http(port);
  const auto status = [&](const std::string& path, const std::string& more) {
    return http.ask("GET", path, "", fmt::format("Host: 127.0.0.1:{}\r\n{}", port, more)).status;
  };
  CHECK(status("/health", "") == 200);
  CHECK(status("/v1/models", "") == 401);
  CHECK(status("/v1/models", "Authorization: Bearer 0123456789abcdeF\r\n") == 401);
  CHECK(status("/v1/models", "Authorization: Bearer 0123456789abcdef\r\n") == 200);
  CHECK(status("/v1/models", "x-api-key: 0123456789abcdef\r\n") == 200);
  CHECK(status("/v1/models", "x-api-key: fedcba9876543210\r\n") == 403);
  CHECK(status("/metrics", "x-api-key: fedcba9876543210\r\n") == 200);
  const HttpAnswer preflight =
      http.ask("OPTIONS", "/v1/completions", "",
               fmt::format("Host: 127.0.0.1:{}\r\nOrigin: http://localhost:3000\r\n"
                           "Access-Control-Request-Method: POST\r\n",
                           port));
  CHECK(preflight.status == 204);
  CHECK(preflight.fields.at("access-control-allow-origin") == "http://localhost:3000");
  const HttpAnswer answer =
      http.ask("POST", "/v1/completions", completion(1, 3, R"(,"stop":"A_SECRET_WORD")"),
               fmt::format("Host: 127.0.0.1:{}\r\nx-api-key: 0123456789abcdef\r\n", port));
  CHECK(answer.status == 200);
  // None of its text is in the log, even at the most verbose level.
  const std::string log = text_of(sandbox.path() / "log");
  CHECK(log.find("0123456789abcde") == std::string::npos);
  CHECK(log.find("A_SECRET_WORD") == std::string::npos);
}

TEST_CASE("the official Python clients work unchanged") {
  const Sandbox sandbox;
  write_tiny_model(sandbox.models() / "tiny.gguf", 1);
  write_tiny_model(
      sandbox.models() / "caller.gguf", 1,
      "{% for m in messages %}{{ m.role }} {{ m.content }}{% for c in m.tool_calls or [] "
      "%}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %} {% endfor %}");
  write_tiny_model(sandbox.models() / "thinker.gguf", 1,
                   "{% for m in messages %}{{ m.content }} {% endfor %}{% if add_generation_prompt "
                   "%}<think>{% endif %}{# </think> #}");
  const Daemon daemon(sandbox, {"http.leave_out_volatile_lines=true"});
  const std::filesystem::path install_log = sandbox.path() / "install";
  const std::filesystem::path python = clients_python(install_log);
  if (python.empty()) HEARTH_SKIP(text_of(install_log).c_str());
  const std::filesystem::path log = sandbox.path() / "clients";
  const pid_t pid =
      start_program({python.string(), hearth::tests::source_path("tests/e2e/http_clients.py"),
                     (daemon.runtime() / "http.sock").string()},
                    log);
  // Some hundred requests in a row, after the interpreter has loaded three libraries.
  const std::optional<int> status = wait_for_exit(pid, 10 * kPatienceMs);
  if (!status) ::kill(pid, SIGKILL);
  REQUIRE_MESSAGE(status.has_value(), text_of(log));
  CHECK_MESSAGE(*status == 0, text_of(log));
}

TEST_CASE("a daemon that other machines could reach does not start") {
  const Sandbox sandbox;
  for (const char* listen : {"0.0.0.0:0", "[::]:0", "192.0.2.1:8080"}) {
    const std::filesystem::path log = sandbox.path() / "refused";
    const pid_t pid = start_program(
        {program("hearthd").string(), "--config", "/dev/null", "--runtime-dir",
         (sandbox.path() / "other").string(), "--set", std::string("http.listen=") + listen},
        log);
    const std::optional<int> status = wait_for_exit(pid, kPatienceMs);
    REQUIRE(status.has_value());
    CHECK(*status != 0);
    CHECK(text_of(log).find("http.listen") != std::string::npos);
  }
}

}  // namespace
}  // namespace hearth::e2e
