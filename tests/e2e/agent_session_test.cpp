// What an agent's session computes of the tokens that it sends: a long system prompt with tools,
// and turns that send all of it again.

#include <doctest/doctest.h>
#include <fmt/core.h>
#include <signal.h>

#include <nlohmann/json.hpp>
#include <random>

#include "tests/e2e/http_client.h"
#include "tests/e2e/tiny_model.h"
#include "tests/skip.h"

namespace hearth::e2e {
namespace {

using Json = nlohmann::json;

constexpr int kTurns = 20;
constexpr const char* kTemplate =
    "{% for t in tools or [] %}{{ t.function.name }} {{ t.function.description }} {% endfor %}"
    "{% for m in messages %}{{ m.role }} {{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}"
    " {% endfor %}";

struct Session {
  int64_t sent = 0;
  int64_t computed = 0;
  int64_t first = 0;  ///< prompt tokens of the first turn
  double share() const { return 100.0 * static_cast<double>(computed) / static_cast<double>(sent); }
};

/// Letters, of which the model's tokenizer makes about `tokens` tokens.
class Words {
 public:
  explicit Words(HttpClient& http) {
    const std::string sample = letters(4000);
    const HttpAnswer counted =
        http.ask("POST", "/tokenize", Json{{"model", "tiny"}, {"text", sample}}.dump());
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

/// `restart`: the daemon ends and another one begins in the middle. `head`: the system prompt
/// begins with a line that differs in each turn, which the configuration leaves out.
Session run_session(bool restart, bool head) {
  // A quarter of the size, with the same shares.
  const int scale = tests::full_counts() ? 1 : 4;
  const Sandbox sandbox;
  write_tiny_model(sandbox.models() / "tiny.gguf", 1, kTemplate, 4 * kTinyContext);
  std::vector<std::string> settings = {"worker.prefix_restore=always"};
  if (head) settings.emplace_back("http.leave_out_volatile_lines=true");
  auto daemon = std::make_unique<Daemon>(sandbox, settings, Company::kAlone);
  auto http = std::make_unique<HttpClient>(*daemon);
  Words words(*http);
  Json request = {{"model", "tiny"}, {"max_tokens", 8}, {"seed", 3}};
  request["tools"] = Json::array();
  for (int i = 0; i < 10; ++i) {
    request["tools"].push_back(
        {{"type", "function"},
         {"function",
          {{"name", fmt::format("tool_{}", i)}, {"description", words.of(1000 / scale)}}}});
  }
  const std::string system = words.of(10'000 / scale);
  request["messages"] = Json::array({{{"role", "system"}, {"content", system}}});
  Session out;
  for (int turn = 0; turn < kTurns; ++turn) {
    if (restart && turn == kTurns / 2) {
      http.reset();
      daemon->signal(SIGTERM);
      daemon->wait_for_exit();
      daemon = std::make_unique<Daemon>(sandbox, settings, Company::kAlone);
      http = std::make_unique<HttpClient>(*daemon);
    }
    if (head) {
      request["messages"][0]["content"] =
          fmt::format("x-anthropic-billing-header: cch={:05x};\n", turn * 7919) + system;
    }
    request["messages"].push_back({{"role", "user"}, {"content", words.of(1000 / scale)}});
    const HttpAnswer answer = http->ask("POST", "/v1/chat/completions", request.dump());
    REQUIRE_MESSAGE(answer.status == 200, answer.body);
    const Json body = Json::parse(answer.body);
    const int64_t prompt = body["usage"]["prompt_tokens"];
    if (turn == 0) out.first = prompt;
    out.sent += prompt;
    out.computed += prompt - body["usage"]["prompt_tokens_details"]["cached_tokens"].get<int64_t>();
    if (head) CHECK(body["usage"]["volatile_lines"] == 1);
    request["messages"].push_back(
        {{"role", "assistant"}, {"content", body["choices"][0]["message"]["content"]}});
  }
  const double tokens = 21'000.0 / scale;
  CHECK(out.first > tokens * 0.95);
  CHECK(out.first < tokens * 1.05);
  MESSAGE(fmt::format("restart {}, volatile head {}: {} of {} prompt tokens computed, {:.2f} %",
                      restart, head, out.computed, out.sent, out.share()));
  return out;
}

TEST_CASE("an agent's session of 20 turns computes a fifteenth of what it sends") {
  const Session plain = run_session(false, false);
  CHECK(plain.share() <= 7.0);
  CHECK(run_session(true, false).share() <= 8.0);
  // A line that differs in each turn changes nothing, since it is left out.
  const Session head = run_session(false, true);
  CHECK(head.sent == plain.sent);
  CHECK(head.computed == plain.computed);
}

}  // namespace
}  // namespace hearth::e2e
