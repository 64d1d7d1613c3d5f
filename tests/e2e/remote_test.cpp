// A daemon that lets another answer in its place: docs/remotes.md.

#include <doctest/doctest.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/e2e/command.h"
#include "tests/e2e/daemon.h"
#include "tests/e2e/http_client.h"
#include "tests/e2e/tiny_model.h"
#include "tests/sse_events.h"
#include "tests/unit/daemon/scripted_server.h"
#include "tests/unit/daemon/tls_peer.h"

namespace hearth::e2e {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kKey = "0123456789abcdef-near";
constexpr const char* kTemplate =
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}";

void write_private(const fs::path& file, const std::string& text) {
  std::ofstream(file) << text;
  REQUIRE(::chmod(file.c_str(), 0600) == 0);
}

/// The daemon that is the remote, over TLS and with a key.
class Far {
 public:
  Far() : daemon_(prepare(), settings(), Company::kAlone) {
    const std::string log = text_of(sandbox_.path() / "log");
    const size_t at = log.rfind("tcp_port=");
    REQUIRE(at != std::string::npos);
    host_ = fmt::format("localhost:{}", std::stoi(log.substr(at + 9)));
  }
  const Daemon& daemon() const { return daemon_; }
  const std::string& host() const { return host_; }
  fs::path certificate() const { return sandbox_.path() / "certificate.pem"; }
  fs::path key_file() const { return sandbox_.path() / "key"; }

 private:
  const Sandbox& prepare() {
    write_tiny_model(sandbox_.models() / "tiny.gguf", 7, kTemplate);
    tests::write_certificate(certificate(), sandbox_.path() / "certificate.key");
    write_private(sandbox_.path() / "keys", fmt::format("near all {}\n", kKey));
    write_private(key_file(), kKey);
    return sandbox_;
  }
  std::vector<std::string> settings() const {
    return {"http.listen=127.0.0.1:0", "http.keys_file=" + (sandbox_.path() / "keys").string(),
            "http.tls_certificate_file=" + certificate().string(),
            "http.tls_key_file=" + (sandbox_.path() / "certificate.key").string()};
  }

  Sandbox sandbox_;
  Daemon daemon_;
  std::string host_;
};

/// `local`: the role's model here; "": none.
std::vector<std::string> role(const Far& far, const std::string& when,
                              const std::string& local = {}) {
  std::vector<std::string> out = {fmt::format("roles.code.remote=https://{}/v1", far.host()),
                                  "roles.code.model=tiny", "roles.code.when=" + when,
                                  "roles.code.key_file=" + far.key_file().string(),
                                  "roles.code.ca_file=" + far.certificate().string()};
  if (!local.empty()) out.push_back("roles.code.local=" + local);
  return out;
}

ipc::GenerateRequest to_role(uint64_t seed, int32_t max_tokens, std::optional<bool> remote = true) {
  ipc::GenerateRequest request;
  request.model = "code";
  request.prompt = "the";
  request.seed = seed;
  request.max_tokens = max_tokens;
  request.remote = remote;
  return request;
}

TEST_CASE(
    "a role's remote answers what this machine cannot: the text that it sends when asked itself") {
  const Far far;
  const Sandbox sandbox;
  const Daemon near(sandbox, role(far, "absent"), Company::kAlone);
  ipc::Client client = near.connect();
  ipc::Client direct = far.daemon().connect();
  for (const uint64_t seed : {1, 2}) {
    ipc::GenerateRequest request = to_role(seed, 40);
    const Answer through = run(client, request);
    REQUIRE_MESSAGE(through.done, why(through));
    request.model = "tiny";
    const Answer alone = run(direct, request);
    REQUIRE(alone.done);
    CHECK(through.texts == alone.texts);
    for (const std::vector<int32_t>& ids : through.ids) CHECK(ids.empty());
    CHECK(through.done->usage.remote == far.host());
    CHECK(through.done->usage.prompt_tokens == alone.done->usage.prompt_tokens);
    CHECK(through.done->usage.output_tokens == alone.done->usage.output_tokens);
    CHECK(through.done->finish_reasons == alone.done->finish_reasons);
    CHECK(through.done->model == "tiny");
    CHECK(through.done->seed == seed);
  }
  const ipc::StatsReply stats = near.stats();
  REQUIRE(stats.remotes.size() == 1);
  CHECK(stats.remotes[0].requests_done == 2);
  CHECK(stats.remotes[0].remote == far.host());
  CHECK(stats.workers.empty());

  // A request that does not allow it stays, and this machine lacks the model.
  for (const auto remote : {std::optional<bool>(), std::optional<bool>(false)}) {
    const Answer stays = run(client, to_role(1, 5, remote));
    REQUIRE(stays.error);
    CHECK(stays.error->code == ErrorCode::kNotFound);
  }
  CHECK(far.daemon().stats().requests_total == 4);
  // The log names the remote, and neither text nor key.
  const std::string log = text_of(sandbox.path() / "log");
  CHECK(log.find("remote_sent") != std::string::npos);
  CHECK(log.find("remote=" + far.host()) != std::string::npos);
  CHECK(log.find(kKey) == std::string::npos);
}

TEST_CASE("every API over HTTP passes a remote's answer on, and names the remote") {
  const Far far;
  const Sandbox sandbox;
  std::vector<std::string> settings = role(far, "absent");
  settings.push_back(fmt::format("owners.\"uid:{}\".remote=true", ::geteuid()));
  const Daemon near(sandbox, settings, Company::kAlone);
  HttpClient through(near), direct(far.daemon());
  struct Api {
    std::string path, body;
    std::function<std::string(const Json&)> text;
    std::function<Json(const Json&)> usage;
  };
  const std::string messages = R"("messages":[{"role":"user","content":"abc"}])";
  const auto usage = [](const Json& answer) { return answer["usage"]; };
  const std::vector<Api> apis = {
      {"/v1/completions", R"("prompt":"abc","max_tokens":12,"seed":3)",
       [](const Json& a) { return a["choices"][0]["text"].get<std::string>(); }, usage},
      {"/v1/chat/completions", messages + R"(,"max_tokens":12,"seed":3,"n":2)",
       [](const Json& a) {
         return a["choices"][0]["message"]["content"].get<std::string>() +
                a["choices"][1]["message"]["content"].get<std::string>();
       },
       usage},
      {"/v1/messages", messages + R"(,"max_tokens":12,"temperature":0)",
       [](const Json& a) { return a["content"][0]["text"].get<std::string>(); }, usage},
      {"/v1/responses", R"("input":"abc","max_output_tokens":12,"temperature":0)",
       [](const Json& a) { return a["output"][0]["content"][0]["text"].get<std::string>(); },
       usage},
      {"/api/chat", messages + R"(,"stream":false,"options":{"num_predict":12,"seed":3})",
       [](const Json& a) { return a["message"]["content"].get<std::string>(); },
       [](const Json& a) { return a; }}};
  for (const Api& api : apis) {
    CAPTURE(api.path);
    const HttpAnswer far_answer =
        direct.ask("POST", api.path, R"({"model":"tiny",)" + api.body + "}");
    const HttpAnswer answer = through.ask("POST", api.path, R"({"model":"code",)" + api.body + "}");
    REQUIRE_MESSAGE(answer.status == 200, answer.body);
    CHECK(answer.fields.at("x-hearth-remote") == far.host());
    CHECK_FALSE(far_answer.fields.contains("x-hearth-remote"));
    const Json body = Json::parse(answer.body);
    CHECK(api.text(body) == api.text(Json::parse(far_answer.body)));
    CHECK(api.usage(body)["remote"] == far.host());
    const HttpAnswer stays =
        through.ask("POST", api.path, R"({"model":"code","remote":false,)" + api.body + "}");
    CHECK(stays.status == 404);
  }
  const std::string chat = messages + R"(,"max_tokens":12,"seed":3,"stream":true,)"
                                      R"("stream_options":{"include_usage":true}})";
  const auto streamed = [&](HttpClient& http, const std::string& model) {
    const HttpAnswer answer =
        http.ask("POST", "/v1/chat/completions", fmt::format(R"({{"model":"{}",)", model) + chat);
    std::string text;
    for (const Json& event : tests::sse_objects(answer.body)) {
      if (event["choices"].empty()) continue;
      text += event["choices"][0]["delta"].value("content", "");
    }
    return std::pair(text, answer);
  };
  const auto [text, answer] = streamed(through, "code");
  CHECK(text == streamed(direct, "tiny").first);
  CHECK(answer.fields.at("x-hearth-remote") == far.host());
  CHECK(tests::sse_objects(answer.body).back()["usage"]["remote"] == far.host());
  const HttpAnswer metrics = through.ask("GET", "/metrics");
  CHECK(metrics.body.find(fmt::format(
            "hearth_remote_requests_ended_total{{role=\"code\",remote=\"{}\",how=\"done\"}} 6\n",
            far.host())) != std::string::npos);
}

TEST_CASE("a queue that takes too long: the request leaves its worker, and shows where it is") {
  const Far far;
  const Sandbox sandbox;
  const Daemon near(sandbox, role(far, "queue_ms > 300", "tiny"), Company::kAlone);
  ipc::Client client = near.connect();
  // While the queue is short the model here answers.
  const Answer local = run(client, to_role(5, 8));
  REQUIRE_MESSAGE(local.done, why(local));
  CHECK_FALSE(local.done->usage.remote);
  CHECK(local.ids.at(0).size() == 8);
  const pid_t worker = near.wait_for_worker();
  const pid_t far_worker = [&] {
    ipc::Client direct = far.daemon().connect();
    ipc::GenerateRequest request = to_role(5, 8);
    request.model = "tiny";
    REQUIRE(run(direct, request).done);
    return far.daemon().wait_for_worker();
  }();
  // Neither computes: the request waits here, then there.
  REQUIRE(::kill(worker, SIGSTOP) == 0);
  REQUIRE(::kill(far_worker, SIGSTOP) == 0);
  const Result<std::string> id = client.start(to_role(6, 8));
  REQUIRE(id.ok());
  ipc::Client other = near.connect();
  REQUIRE(eventually([&] {
    const Result<ipc::PsReply> ps = other.ps();
    return ps.ok() && ps->requests.size() == 1 && ps->requests[0].state == "remote" &&
           ps->requests[0].remote == far.host();
  }));
  CHECK(eventually([&] { return far.daemon().stats().requests_live == 1; }));
  REQUIRE(::kill(far_worker, SIGCONT) == 0);
  const std::map<std::string, Answer> answers = collect(client, 1);
  REQUIRE_MESSAGE(answers.begin()->second.done, why(answers.begin()->second));
  CHECK(answers.begin()->second.done->usage.remote == far.host());
  REQUIRE(::kill(worker, SIGCONT) == 0);
  const Answer again = run(client, to_role(5, 8));
  REQUIRE(again.done);
  CHECK(again.texts == local.texts);
  CHECK(near.wait_until_idle());
}

TEST_CASE("a client that cancels or leaves ends its request at the remote") {
  const Far far;
  const Sandbox sandbox;
  const Daemon near(sandbox, role(far, "absent"), Company::kAlone);
  ipc::Client direct = far.daemon().connect();
  ipc::GenerateRequest warm = to_role(5, 8);
  warm.model = "tiny";
  REQUIRE(run(direct, warm).done);
  const pid_t worker = far.daemon().wait_for_worker();
  REQUIRE(::kill(worker, SIGSTOP) == 0);
  ipc::Client client = near.connect();
  const Result<std::string> id = client.start(to_role(6, 4000));
  REQUIRE(id.ok());
  REQUIRE(eventually([&] { return far.daemon().stats().requests_live == 1; }));
  REQUIRE(client.cancel(*id).ok());
  const std::map<std::string, Answer> answers = collect(client, 1);
  REQUIRE(answers.begin()->second.done);
  CHECK(answers.begin()->second.done->finish_reasons.at(0) == "cancelled");
  {
    HttpClient http(near);
    http.send(post("/v1/completions",
                   R"({"model":"code","prompt":"a","max_tokens":4000,"seed":1,"remote":true})"));
    REQUIRE(eventually([&] { return near.stats().remotes.at(0).requests_live == 1; }));
  }
  REQUIRE(eventually([&] { return near.stats().requests_live == 0; }));
  REQUIRE(::kill(worker, SIGCONT) == 0);
  CHECK(eventually([&] { return far.daemon().stats().requests_live == 0; }));
  CHECK(far.daemon().stats().requests_cancelled >= 1);
  CHECK(near.stats().remotes.at(0).requests_cancelled == 2);
}

TEST_CASE("a remote that fails: amid an answer an error, before it the answer of this machine") {
  const tests::ScriptedServer server([](tests::ScriptedPeer& peer) {
    const std::string request = peer.read_request();
    if (request.find("\"n\":2") != std::string::npos) return;
    peer.send(tests::open_response("200 OK", "text/event-stream",
                                   R"(data: {"choices":[{"index":0,"text":"12345"}]})"
                                   "\n\ndata: {\"cho"));
  });
  const Sandbox sandbox;
  const Daemon near(sandbox,
                    {fmt::format("roles.code.remote=http://127.0.0.1:{}/v1", server.port()),
                     "roles.code.model=far", "roles.code.when=absent", "roles.code.local=tiny"},
                    Company::kAlone);
  ipc::Client client = near.connect();
  ipc::GenerateRequest request = to_role(3, 6);
  const Answer broken = run(client, request);
  REQUIRE(broken.error);
  CHECK(broken.error->code == ErrorCode::kUnavailable);
  CHECK(broken.error->message.find("in the middle of an event; of its answer, 5 bytes of text") !=
        std::string::npos);
  CHECK(broken.texts.at(0) == "12345");
  request.n = 2;
  const Answer back = run(client, request);
  REQUIRE_MESSAGE(back.done, why(back));
  CHECK_FALSE(back.done->usage.remote);
  request.remote = false;
  CHECK(run(client, request).texts == back.texts);
}

TEST_CASE("a reload exchanges a remote's key, and one with an error changes nothing") {
  const Far far;
  const Sandbox sandbox;
  const fs::path file = sandbox.path() / "hearth.toml", key = sandbox.path() / "other.key";
  write_private(key, "0123456789abcdef-wrong");
  const auto write_config = [&](const std::string& model) {
    write_private(file, fmt::format("[roles.code]\nremote = \"https://{}/v1\"\nkey_file = \"{}\"\n"
                                    "ca_file = \"{}\"\nmodel = \"{}\"\nwhen = \"absent\"\n",
                                    far.host(), key.string(), far.certificate().string(), model));
  };
  write_config("tiny");
  const Daemon near(sandbox, {}, Company::kAlone, file);
  ipc::Client client = near.connect();
  const Answer refused = run(client, to_role(1, 4));
  REQUIRE(refused.error);
  CHECK(refused.error->message.find("it refuses with status 401") != std::string::npos);
  CHECK(refused.error->message.find("0123456789abcdef") == std::string::npos);
  write_private(key, kKey);
  near.signal(SIGHUP);
  REQUIRE(eventually([&] { return run(client, to_role(1, 4)).done.has_value(); }, 50));
  write_config("");
  near.signal(SIGHUP);
  REQUIRE(eventually(
      [&] { return text_of(sandbox.path() / "log").find("not_reloaded") != std::string::npos; }));
  CHECK(run(client, to_role(1, 4)).done);
}

}  // namespace
}  // namespace hearth::e2e
