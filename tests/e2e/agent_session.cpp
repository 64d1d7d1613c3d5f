#include "tests/e2e/agent_session.h"

#include <doctest/doctest.h>
#include <fmt/core.h>
#include <signal.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <random>

#include "tests/e2e/http_client.h"

namespace hearth::e2e {
namespace {

using Json = nlohmann::json;

constexpr int kTurns = 20;

/// Letters, of which the model's tokenizer makes about `tokens` tokens.
class Words {
 public:
  Words(HttpClient& http, const std::string& model) {
    const std::string sample = letters(4000);
    const HttpAnswer counted =
        http.ask("POST", "/tokenize", Json{{"model", model}, {"text", sample}}.dump());
    REQUIRE_MESSAGE(counted.status == 200, counted.body);
    letters_per_token_ = 4000.0 / Json::parse(counted.body)["count"].get<double>();
  }
  std::string of(int tokens) { return letters(static_cast<size_t>(tokens * letters_per_token_)); }

 private:
  std::string letters(size_t count) {
    std::string out;
    while (out.size() < count) out += static_cast<char>('a' + random_() % 26);
    return out;
  }
  std::mt19937 random_{7};
  double letters_per_token_ = 1;
};

}  // namespace

SessionCounts run_agent_session(const Sandbox& sandbox, const AgentSession& session) {
  std::vector<std::string> settings = session.settings;
  settings.emplace_back("worker.prefix_restore=always");
  if (session.head) settings.emplace_back("http.leave_out_volatile_lines=true");
  std::unique_ptr<Daemon> daemon;
  std::unique_ptr<HttpClient> http;
  const auto begin = [&] {
    daemon = std::make_unique<Daemon>(sandbox, settings, Company::kAlone);
    http = std::make_unique<HttpClient>(*daemon);
    http->set_patience_ms(session.patience_ms);
  };
  begin();
  Words words(*http, session.model);
  Json request = {{"model", session.model}, {"max_tokens", 8}, {"seed", 3}};
  if (session.hermes) request["tool_form"] = "hermes";
  request["tools"] = Json::array();
  for (int i = 0; i < 10; ++i) {
    request["tools"].push_back(
        {{"type", "function"},
         {"function",
          {{"name", fmt::format("tool_{}", i)}, {"description", words.of(1000 / session.scale)}}}});
  }
  const std::string system = words.of(10'000 / session.scale);
  request["messages"] = Json::array({{{"role", "system"}, {"content", system}}});
  SessionCounts out;
  int64_t first = 0;
  for (int turn = 0; turn < kTurns; ++turn) {
    if (session.restart && turn == kTurns / 2) {
      http.reset();
      daemon->signal(SIGTERM);
      daemon->wait_for_exit();
      begin();
    }
    if (session.head) {
      request["messages"][0]["content"] =
          fmt::format("x-anthropic-billing-header: cch={:05x};\n", turn * 7919) + system;
    }
    request["messages"].push_back({{"role", "user"}, {"content", words.of(1000 / session.scale)}});
    const HttpAnswer answer = http->ask("POST", "/v1/chat/completions", request.dump());
    REQUIRE_MESSAGE(answer.status == 200, answer.body);
    const Json body = Json::parse(answer.body);
    const int64_t prompt = body["usage"]["prompt_tokens"];
    if (turn == 0) first = prompt;
    out.sent += prompt;
    out.computed += prompt - body["usage"]["prompt_tokens_details"]["cached_tokens"].get<int64_t>();
    if (session.head) CHECK(body["usage"]["volatile_lines"] == 1);
    request["messages"].push_back({{"role", "assistant"}, {"content", "Done."}});
    const Json& text = body["choices"][0]["message"]["content"];
    if (text.is_string()) request["messages"].back()["content"] = text;
  }
  const double tokens = 21'000.0 / session.scale;
  CHECK(static_cast<double>(first) > tokens * 0.95);
  CHECK(static_cast<double>(first) < tokens * 1.20);  // with the words of the template
  MESSAGE(fmt::format("{}, restart {}, volatile head {}: {} of {} prompt tokens computed, {:.2f} %",
                      session.model, session.restart, session.head, out.computed, out.sent,
                      out.share()));
  return out;
}

}  // namespace hearth::e2e
