// Several daemons and a router that knows nothing of hearth: docs/routers.md.

#include <doctest/doctest.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/e2e/command.h"
#include "tests/e2e/daemon.h"
#include "tests/e2e/http_client.h"
#include "tests/e2e/tiny_model.h"
#include "tests/skip.h"

namespace hearth::e2e {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kNginx = "/usr/sbin/nginx";
constexpr const char* kTemplate =
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}";
constexpr int kTurns = 8;

/// nginx from Debian in front of these daemons, with the configuration of docs/routers.md.
class Nginx {
 public:
  Nginx(const fs::path& folder, const std::vector<std::unique_ptr<Daemon>>& daemons)
      : socket_(folder / "nginx.sock") {
    const fs::path file = folder / "nginx.conf";
    std::ofstream out(file);
    out << "daemon off;\nworker_processes 1;\nuser root;\npid " << (folder / "nginx.pid").string()
        << ";\nerror_log stderr;\nevents {}\nhttp {\n  access_log off;\n";
    for (const char* kind : {"client_body", "proxy", "fastcgi", "uwsgi", "scgi"}) {
      out << "  " << kind << "_temp_path " << (folder / kind).string() << ";\n";
    }
    out << "  upstream hearth {\n    hash $http_x_session_id consistent;\n";
    for (const auto& daemon : daemons) {
      out << "    server unix:" << (daemon->runtime() / "http.sock").string() << ";\n";
    }
    out << "  }\n  server {\n    listen unix:" << socket_.string()
        << ";\n    location / {\n      proxy_pass http://hearth;\n      proxy_http_version 1.1;\n"
           "      proxy_set_header Host localhost;\n      proxy_buffering off;\n"
           "      proxy_request_buffering off;\n      proxy_read_timeout 1h;\n"
           "      client_max_body_size 32m;\n    }\n  }\n}\n";
    out.close();
    pid_ = start_program({kNginx, "-e", "stderr", "-c", file.string(), "-p", folder.string()},
                         folder / "nginx.log");
    REQUIRE_MESSAGE(eventually([this] { return fs::exists(socket_); }),
                    text_of(folder / "nginx.log"));
  }
  ~Nginx() {
    ::kill(pid_, SIGTERM);
    CHECK(wait_for_exit(pid_, kPatienceMs).has_value());
  }
  Nginx(const Nginx&) = delete;
  Nginx& operator=(const Nginx&) = delete;
  const fs::path& socket() const { return socket_; }

 private:
  const fs::path socket_;
  pid_t pid_ = -1;
};

struct Turn {
  std::string text;
  int64_t computed = 0;  ///< prompt tokens that no cache had
};

class Conversation {
 public:
  Conversation(fs::path socket, std::string session)
      : socket_(std::move(socket)), session_(std::move(session)) {
    request_ = {{"model", "tiny"}, {"max_tokens", 16}, {"temperature", 0}};
    request_["messages"] = {{{"role", "system"}, {"content", session_ + std::string(400, 'a')}}};
  }
  Turn next() {
    request_["messages"].push_back(
        {{"role", "user"}, {"content", fmt::format("{} {}", session_, turns_++)}});
    const HttpAnswer answer =
        HttpClient(socket_).ask("POST", "/v1/chat/completions", request_.dump(),
                                fmt::format("Host: localhost\r\nX-Session-Id: {}\r\n", session_));
    REQUIRE_MESSAGE(answer.status == 200, answer.body);
    const Json body = Json::parse(answer.body);
    const Json& usage = body["usage"];
    Turn turn{body["choices"][0]["message"]["content"],
              usage["prompt_tokens"].get<int64_t>() -
                  usage["prompt_tokens_details"]["cached_tokens"].get<int64_t>()};
    request_["messages"].push_back({{"role", "assistant"}, {"content", turn.text}});
    return turn;
  }

 private:
  const fs::path socket_;
  const std::string session_;
  Json request_;
  int turns_ = 0;
};

std::vector<Turn> whole(Conversation conversation) {
  std::vector<Turn> out;
  for (int i = 0; i < kTurns; ++i) out.push_back(conversation.next());
  return out;
}

TEST_CASE("through nginx a conversation returns to its daemon, and survives that daemon's death") {
  if (!fs::exists(kNginx)) HEARTH_SKIP("needs nginx, from the Debian package nginx-light");
  const std::array<std::string, 4> sessions = {"ab", "cd", "ef", "gh"};
  std::array<Sandbox, 4> sandboxes;
  for (const Sandbox& sandbox : sandboxes) {
    write_tiny_model(sandbox.models() / "tiny.gguf", 1, kTemplate);
  }
  std::vector<std::vector<Turn>> alone;
  {
    const Daemon one(sandboxes[3], {}, Company::kAlone);
    for (const std::string& session : sessions) {
      alone.push_back(whole({one.runtime() / "http.sock", session}));
    }
    const std::string log = text_of(sandboxes[3].path() / "log");
    CHECK(log.find("session=\"ab\"") != std::string::npos);
  }
  std::vector<std::unique_ptr<Daemon>> daemons;
  for (size_t i = 0; i < 3; ++i) {
    daemons.push_back(
        std::make_unique<Daemon>(sandboxes[i], std::vector<std::string>{}, Company::kAlone));
  }
  const Nginx nginx(sandboxes[3].path(), daemons);
  std::vector<Conversation> all;
  for (const std::string& session : sessions) all.emplace_back(nginx.socket(), session);
  for (int turn = 0; turn < kTurns / 2; ++turn) {  // in turns, so that a wrong daemon would be met
    for (size_t i = 0; i < all.size(); ++i) {
      const Turn met = all[i].next();
      CHECK(met.text == alone[i][turn].text);
      CHECK(met.computed == alone[i][turn].computed);
    }
  }

  const auto served = [](const std::unique_ptr<Daemon>& daemon) {
    return daemon->stats().requests_done;
  };
  const auto busiest = std::ranges::max_element(daemons, {}, served);
  REQUIRE(served(*busiest) > 0);
  daemons.erase(busiest);
  for (int turn = kTurns / 2; turn < kTurns; ++turn) {
    for (size_t i = 0; i < all.size(); ++i) {
      const Turn met = all[i].next();
      CHECK(met.text == alone[i][turn].text);
      // A daemon that has not met it computes its prompt, once.
      if (turn > kTurns / 2) CHECK(met.computed == alone[i][turn].computed);
    }
  }
}

}  // namespace
}  // namespace hearth::e2e
