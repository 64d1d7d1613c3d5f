// Kept answers of the responses API: continued by their id, across restarts, by their owner alone.

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "tests/e2e/http_client.h"
#include "tests/e2e/other_answer.h"
#include "tests/e2e/tiny_model.h"
#include "tests/skip.h"
#include "tests/sse_events.h"

namespace hearth::e2e {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kTemplate =
    "{% for m in messages %}{{ m.role }}: {{ m.reasoning_content }}{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}";
constexpr int kBlock = 16;

void add_model(const Sandbox& sandbox) {
  write_tiny_model(sandbox.models() / "tiny.gguf", 1, kTemplate);
}

/// A request whose answer depends on its prompt alone.
Json turn(const Json& input, const std::string& previous = {}) {
  Json request = {
      {"model", "tiny"}, {"temperature", 0}, {"max_output_tokens", 24}, {"input", input}};
  if (!previous.empty()) request["previous_response_id"] = previous;
  return request;
}

Json answer_to(const Daemon& daemon, const Json& request) {
  HttpClient http(daemon);
  const HttpAnswer answer = http.ask("POST", "/v1/responses", request.dump());
  REQUIRE_MESSAGE(answer.status == 200, answer.body);
  if (!request.value("stream", false)) return Json::parse(answer.body);
  return tests::sse_events(answer.body).back()["response"];
}

HttpAnswer ask(const Daemon& daemon, const std::string& method, const std::string& path) {
  return HttpClient(daemon).ask(method, path);
}

TEST_CASE("a conversation by ids is the one that is sent again, also after a restart") {
  const Sandbox sandbox;
  add_model(sandbox);
  auto daemon = std::make_unique<Daemon>(sandbox);
  const auto restart = [&](int number) {
    daemon->signal(number);
    daemon->wait_for_exit();
    daemon = std::make_unique<Daemon>(sandbox);
  };
  const std::string question(100, 'q');
  Json input = Json::array({{{"role", "user"}, {"content", question}}});
  Json answer = answer_to(*daemon, turn(question));
  CHECK(answer["store"] == true);
  CHECK(answer["previous_response_id"].is_null());
  for (int i = 0; i < 4; ++i) {
    CAPTURE(i);
    for (const Json& item : answer["output"]) input.push_back(item);
    if (i == 1) restart(SIGTERM);
    if (i == 2) {
      // Read back, so that it is written by now.
      REQUIRE(ask(*daemon, "GET", "/v1/responses/" + answer["id"].get<std::string>()).status ==
              200);
      restart(SIGKILL);
    }
    const std::string next = fmt::format("and then {}?", std::string(40, 'a' + i));
    const std::string id = answer["id"];
    Json by_id = turn(next, id);
    by_id["stream"] = i % 2 == 1;
    answer = answer_to(*daemon, by_id);
    CHECK(answer["previous_response_id"] == id);
    input.push_back({{"role", "user"}, {"content", next}});
    // Its prompt is cached by now, block by block: the cache compares tokens.
    const Json again = answer_to(*daemon, turn(input));
    CHECK(again["output"][0]["content"] == answer["output"][0]["content"]);
    const int tokens = answer["usage"]["input_tokens"];
    CHECK(again["usage"]["input_tokens"] == tokens);
    CHECK(again["usage"]["input_tokens_details"]["cached_tokens"] >=
          (tokens - 1) / kBlock * kBlock);
    if (i == 0 || i == 3) CHECK(answer["usage"]["input_tokens_details"]["cached_tokens"] > 0);
  }
  // All of it can be read back.
  const HttpAnswer shown = ask(*daemon, "GET", "/v1/responses/" + answer["id"].get<std::string>());
  CHECK(shown.status == 200);
  CHECK(Json::parse(shown.body) == answer);
  const Json items = Json::parse(
      ask(*daemon, "GET",
          "/v1/responses/" + answer["id"].get<std::string>() + "/input_items?order=asc&limit=100")
          .body);
  REQUIRE(items["data"].size() == input.size());
  for (size_t i = 0; i < input.size(); ++i) CHECK(items["data"][i]["role"] == input[i]["role"]);
}

TEST_CASE("kept answers belong to their owner, and leave when they are deleted") {
  const Sandbox sandbox;
  add_model(sandbox);
  const Daemon daemon(sandbox);
  const std::string id = answer_to(daemon, turn("a"))["id"];
  const std::string path = "/v1/responses/" + id;
  struct stat info {};
  REQUIRE(::stat((sandbox.state() / "responses.db").c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0600);
  if (::geteuid() == 0) {
    CHECK(answer_to_other(sandbox, daemon, "GET", path).starts_with("404 "));
    CHECK(answer_to_other(sandbox, daemon, "GET", path + "/input_items").starts_with("404 "));
    CHECK(answer_to_other(sandbox, daemon, "DELETE", path).starts_with("404 "));
    const std::string refused =
        answer_to_other(sandbox, daemon, "POST", "/v1/responses", turn("b", id).dump());
    CHECK(refused.starts_with("400 "));
    // As for an id that does not exist.
    const HttpAnswer unknown =
        HttpClient(daemon).ask("POST", "/v1/responses", turn("b", "resp_x").dump());
    std::string same = refused.substr(4);
    same.replace(same.find(id), id.size(), "resp_x");
    CHECK(unknown.body == same);
    CHECK(Json::parse(unknown.body)["error"]["message"] ==
          "Previous response with id 'resp_x' not found.");
  }
  HttpClient head(daemon);
  head.send(fmt::format("HEAD {} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", path));
  const std::string bare = head.read(1 << 20);
  CHECK(bare.starts_with("HTTP/1.1 200 "));
  CHECK(bare.ends_with("\r\n\r\n"));
  CHECK(ask(daemon, "GET", path + "/").status == 200);
  const HttpAnswer removed = ask(daemon, "DELETE", path);
  CHECK(removed.status == 200);
  CHECK(Json::parse(removed.body)["deleted"] == true);
  CHECK(ask(daemon, "GET", path).status == 404);
  CHECK(HttpClient(daemon).ask("POST", "/v1/responses", turn("b", id).dump()).status == 400);

  Json declined = turn("a");
  declined["store"] = false;
  const Json answer = answer_to(daemon, declined);
  CHECK(answer["store"] == false);
  CHECK(ask(daemon, "GET", "/v1/responses/" + answer["id"].get<std::string>()).status == 404);
  const std::string metrics = ask(daemon, "GET", "/metrics").body;
  CHECK(metrics.find("hearth_responses_kept 0\n") != std::string::npos);
}

constexpr const char* kThinker =
    "{% for m in messages %}{% if m.role == 'assistant' %}<think>{{ m.reasoning_content }}"
    "</think>{{ m.content }}\n{% else %}{{ m.role }}: {{ m.content }}\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<think>{% endif %}";

HttpAnswer ask_thinker(const Daemon& daemon, const std::string& model, const Json& input) {
  const Json request = {{"model", model},
                        {"temperature", 0},
                        {"store", false},
                        {"max_output_tokens", 80},
                        {"reasoning", {{"max_tokens", 30}}},
                        {"include", {"reasoning.encrypted_content"}},
                        {"input", input}};
  return HttpClient(daemon).ask("POST", "/v1/responses", request.dump());
}

struct Tokens {
  int prompt = 0, cached = 0;
};
Tokens tokens_of(const HttpAnswer& answer) {
  REQUIRE_MESSAGE(answer.status == 200, answer.body);
  const Json usage = Json::parse(answer.body)["usage"];
  return {usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"]};
}

struct Turn {
  Json question, output;
  int prompt_tokens = 0;
  /// The conversation goes on, with this for its reasoning.
  Json next(const Json& reasoning) const {
    Json input = Json::array({question, reasoning});
    for (size_t i = 1; i < output.size(); ++i) input.push_back(output[i]);
    input.push_back({{"role", "user"}, {"content", "and?"}});
    return input;
  }
};

/// Random weights rarely write text that is read back as the same tokens; after one of these
/// questions they do.
Turn first_turn(const Daemon& daemon) {
  Turn turn;
  const auto is_plain = [](const std::string& text) {
    return std::ranges::all_of(text, [](char c) { return c > ' ' && c <= '~'; });
  };
  for (char letter = 'a'; letter < 'g'; ++letter) {
    turn.question = {{"role", "user"}, {"content", std::string(60, letter)}};
    const HttpAnswer answer = ask_thinker(daemon, "tiny", Json::array({turn.question}));
    turn.prompt_tokens = tokens_of(answer).prompt;
    turn.output = Json::parse(answer.body)["output"];
    const Json& item = turn.output[0];
    if (item["type"] == "reasoning" && is_plain(item["content"][0]["text"])) return turn;
  }
  FAIL("no reasoning of plain text");
  return turn;
}

TEST_CASE("sealed reasoning makes the prompt that is cached, for its owner and model alone") {
  const Sandbox sandbox;
  write_tiny_model(sandbox.models() / "tiny.gguf", 6, kThinker);
  write_tiny_model(sandbox.models() / "other.gguf", 2, kThinker);
  auto daemon = std::make_unique<Daemon>(sandbox);
  const Turn turn = first_turn(*daemon);
  const std::string sealed = turn.output[0]["encrypted_content"];
  Json item = {{"type", "reasoning"}, {"summary", Json::array()}, {"encrypted_content", sealed}};
  // What is cached goes far into the reasoning.
  const HttpAnswer second = ask_thinker(*daemon, "tiny", turn.next(item));
  const Tokens by_seal = tokens_of(second);
  CHECK(by_seal.cached > turn.prompt_tokens + kBlock);
  CHECK(second.fields.count("x-hearth-ignored") == 0);
  Json open = turn.output[0];
  open.erase("encrypted_content");
  const Tokens by_text = tokens_of(ask_thinker(*daemon, "tiny", turn.next(open)));
  CHECK(by_text.prompt == by_seal.prompt);
  CHECK(by_text.cached == (by_seal.prompt - 1) / kBlock * kBlock);

  // Another model gets the conversation without it.
  const HttpAnswer elsewhere = ask_thinker(*daemon, "other", turn.next(item));
  CHECK(elsewhere.fields.at("x-hearth-ignored") == "input.encrypted_content");
  Json without = turn.next(item);
  without.erase(without.begin() + 1);
  CHECK(tokens_of(elsewhere).prompt == tokens_of(ask_thinker(*daemon, "other", without)).prompt);

  struct stat info {};
  REQUIRE(::stat((sandbox.state() / "reasoning.key").c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0600);
  if (::geteuid() == 0) {
    const Json body = {{"model", "tiny"}, {"max_output_tokens", 1}, {"input", turn.next(item)}};
    const std::string refused =
        answer_to_other(sandbox, *daemon, "POST", "/v1/responses", body.dump());
    CHECK(refused.starts_with("400 "));
    CHECK(refused.find("input[1].encrypted_content") != std::string::npos);
  }
  daemon->signal(SIGKILL);
  daemon->wait_for_exit();
  daemon = std::make_unique<Daemon>(sandbox);
  CHECK(ask_thinker(*daemon, "tiny", turn.next(item)).status == 200);
  item["encrypted_content"] = sealed.substr(0, sealed.size() - 1);
  const HttpAnswer cut = ask_thinker(*daemon, "tiny", turn.next(item));
  CHECK(cut.status == 400);
  CHECK(Json::parse(cut.body)["error"]["param"] == "input[1].encrypted_content");
}

TEST_CASE("the configuration turns keeping answers off, for all or for one owner") {
  const Sandbox sandbox;
  add_model(sandbox);
  {
    Daemon daemon(sandbox);
    answer_to(daemon, turn("a"));
    daemon.signal(SIGTERM);
    daemon.wait_for_exit();
  }
  CHECK(fs::exists(sandbox.state() / "responses.db"));
  const std::vector<std::string> settings[] = {
      {fmt::format(R"(cache_owners."uid:{}"="memory")", ::geteuid())},
      {"cache.tier=memory"},
      {"http.responses_keep_s=0"}};
  for (const std::vector<std::string>& off : settings) {
    CAPTURE(off[0]);
    Daemon daemon(sandbox, off);
    const Json answer = answer_to(daemon, turn("a"));
    CHECK(answer["store"] == false);
    CHECK(ask(daemon, "GET", "/v1/responses/" + answer["id"].get<std::string>()).status >= 400);
    Json wanted = turn("a");
    wanted["store"] = true;
    CHECK(HttpClient(daemon).ask("POST", "/v1/responses", wanted.dump()).status == 400);
    CHECK(HttpClient(daemon).ask("POST", "/v1/responses", turn("b", "resp_x").dump()).status ==
          400);
    if (&off != std::end(settings) - 1) continue;
    // What was kept before is gone.
    CHECK(eventually([&] { return !fs::exists(sandbox.state() / "responses.db"); }));
  }
}

TEST_CASE("a damaged file of kept answers, or none that can be written, costs no answer") {
  const Sandbox sandbox;
  add_model(sandbox);
  fs::create_directories(sandbox.state());
  std::ofstream(sandbox.state() / "responses.db") << std::string(20'000, 'x');
  {
    Daemon daemon(sandbox);
    const std::string id = answer_to(daemon, turn("a"))["id"];
    CHECK(answer_to(daemon, turn("b", id))["previous_response_id"] == id);
    CHECK(fs::exists(sandbox.state() / "responses.db.damaged"));
    // Damaged while it runs.
    fs::resize_file(sandbox.state() / "responses.db", 100);
    std::ofstream(sandbox.state() / "responses.db-wal") << "x";
    answer_to(daemon, turn("c"));
    const std::string later = answer_to(daemon, turn("d"))["id"];
    const HttpAnswer read = ask(daemon, "GET", "/v1/responses/" + later);
    CHECK((read.status == 200 || read.status == 404 || read.status == 503));
    daemon.signal(SIGTERM);
    daemon.wait_for_exit();
  }
  fs::remove_all(sandbox.state());
  std::ofstream(sandbox.state()) << "a file";
  const Daemon daemon(sandbox);
  const std::string id = answer_to(daemon, turn("a"))["id"];
  CHECK(HttpClient(daemon).ask("POST", "/v1/responses", turn("b", id).dump()).status == 503);
  CHECK(eventually([&] {
    return ask(daemon, "GET", "/metrics").body.find("hearth_responses_not_kept_total 1\n") !=
           std::string::npos;
  }));
  CHECK(ask(daemon, "GET", "/health").body.find("not kept") != std::string::npos);
}

}  // namespace
}  // namespace hearth::e2e
