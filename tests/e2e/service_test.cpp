// hearthd as a service: reloading, users, access over TCP.

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "ipc/wire/curve.h"
#include "tests/e2e/daemon.h"
#include "tests/e2e/raw_client.h"
#include "tests/e2e/tiny_model.h"

namespace hearth::e2e {
namespace {

namespace fs = std::filesystem;

/// An address that is free now.
int free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  REQUIRE(::bind(fd, reinterpret_cast<const sockaddr*>(&address), size) == 0);
  REQUIRE(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  ::close(fd);
  return ntohs(address.sin_port);
}

TEST_CASE("SIGHUP reloads the configuration; one with an error changes nothing") {
  const Sandbox sandbox;
  const fs::path file = sandbox.path() / "hearth.toml";
  std::ofstream(file) << "[limits]\nmax_requests_per_owner = 1\n[roles]\nchat = \"tiny\"\n";
  write_tiny_model(sandbox.models() / "tiny.gguf", 1);
  write_tiny_model(sandbox.models() / "other.gguf", 2);
  const fs::path log = sandbox.path() / "log";
  const pid_t pid = start_program(
      {program("hearthd").string(), "--allow-root", "--config", file.string(), "--runtime-dir",
       sandbox.runtime().string(), "--model-dir", sandbox.models().string(), "--set",
       "worker.kv_bytes=33554432", "--set", "server.state_dir=" + sandbox.state().string()},
      log);
  REQUIRE(
      eventually([&] { return ipc::Client::connect({.runtime_dir = sandbox.runtime()}).ok(); }));
  Result<ipc::Client> client = ipc::Client::connect({.runtime_dir = sandbox.runtime()});
  REQUIRE(client.ok());
  const auto model_of = [&](const std::string& role) {
    const Result<ipc::ModelsReply> reply = client->models();
    REQUIRE(reply.ok());
    for (const ipc::ModelEntry& model : reply->models) {
      for (const std::string& each : model.roles) {
        if (each == role) return model.name;
      }
    }
    return std::string();
  };
  const auto reloads = [&](const char* word) {
    ::kill(pid, SIGHUP);
    return eventually([&] { return text_of(log).find(word) != std::string::npos; });
  };
  CHECK(model_of("chat") == "tiny");

  std::ofstream(file) << "[limits]\nmax_requests_per_owner = 0\n";
  CHECK(reloads("not_reloaded"));
  CHECK(model_of("chat") == "tiny");

  std::ofstream(file) << "[server]\nadmin_group = \"root\"\n[limits]\nmax_requests_per_owner = 2\n"
                         "[roles]\nchat = \"other\"\nnew = \"tiny\"\n";
  CHECK(reloads("needs_restart"));
  CHECK(text_of(log).find("server.admin_group=\"root\"") != std::string::npos);
  CHECK(text_of(log).find("limits.max_requests_per_owner=2") != std::string::npos);
  CHECK(model_of("chat") == "other");
  CHECK(model_of("new") == "tiny");
  // The new limit holds, the old one does not.
  REQUIRE(client->start(seeded(1, kTinyContext - 100), "a").ok());
  REQUIRE(client->start(seeded(2, kTinyContext - 100), "b").ok());
  REQUIRE(eventually([&] { return client->ps()->requests.size() == 2; }));
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
}

TEST_CASE("root must confirm that it wants to run the daemon") {
  if (::geteuid() != 0) {
    MESSAGE("not root: nothing to refuse");
    return;
  }
  const Sandbox sandbox;
  const fs::path log = sandbox.path() / "log";
  const std::string env = "/usr/bin/env";
  const pid_t daemon = start_program({env, "-u", "HEARTH_ALLOW_ROOT", program("hearthd").string(),
                                      "--runtime-dir", sandbox.runtime().string()},
                                     log);
  const std::optional<int> how = wait_for_exit(daemon, kPatienceMs);
  REQUIRE(how.has_value());
  CHECK(WEXITSTATUS(*how) == 1);
  CHECK(text_of(log).find("--allow-root") != std::string::npos);
  CHECK_FALSE(fs::exists(sandbox.runtime()));

  const pid_t run = start_program(
      {env, "-u", "HEARTH_ALLOW_ROOT", "HEARTH_RUNTIME_DIR=" + sandbox.runtime().string(),
       program("hearth").string(), "run", "tales", "x"},
      sandbox.path() / "out");
  REQUIRE(wait_for_exit(run, kPatienceMs).has_value());
  CHECK(text_of(sandbox.path() / "out").find("--allow-root") != std::string::npos);
  CHECK_FALSE(fs::exists(sandbox.runtime()));
}

TEST_CASE("over TCP a known key is its user and no administrator; others get no answer") {
  const Sandbox sandbox;
  const auto keys = [&](const char* name) {
    const Result<ipc::CurveKeys> made = ipc::make_curve_keys();
    REQUIRE(made.ok());
    REQUIRE(ipc::write_secret_key(sandbox.path() / name, *made).ok());
    return *made;
  };
  const ipc::CurveKeys server = keys("server"), known = keys("known"), unknown = keys("unknown");
  const fs::path clients = sandbox.path() / "clients";
  std::ofstream(clients) << known.public_key << " 4242\n";
  fs::permissions(clients, fs::perms::owner_read | fs::perms::owner_write);
  const std::string address = "127.0.0.1:" + std::to_string(free_port());
  const Daemon daemon(sandbox, {"server.tcp=\"" + address + "\"",
                                "server.tcp_secret_file=" + (sandbox.path() / "server").string(),
                                "server.tcp_clients_file=" + clients.string()});
  const auto connect = [&](const char* key_file, const std::string& server_key,
                           int answer_ms = 1500) {
    ipc::ClientOptions options;
    options.tcp = address;
    options.tcp_server_key = server_key;
    options.tcp_key_file = sandbox.path() / key_file;
    options.answer_ms = answer_ms;
    return ipc::Client::connect(options);
  };
  Result<ipc::Client> client = connect("known", server.public_key);
  REQUIRE_MESSAGE(client.ok(), (client.ok() ? "" : client.error().message));
  const Answer answer = run(*client, seeded(1, 5));
  CHECK(answer.done.has_value());
  CHECK(client->load({.model = "tiny"}).error().code == ErrorCode::kForbidden);
  // The administrator on this machine sees the owner of the request.
  REQUIRE(client->start(seeded(1, kTinyContext - 100), "far").ok());
  ipc::Client here = daemon.connect();
  REQUIRE(eventually([&] { return here.ps()->requests.size() == 1; }));
  CHECK(here.ps()->requests[0].owner == "uid:4242");
  REQUIRE(here.cancel("far").ok());

  CHECK_FALSE(connect("unknown", server.public_key, 300).ok());
  CHECK_FALSE(connect("known", unknown.public_key, 300).ok());  // not the daemon that was meant
  CHECK(connect("known", "short").error().code == ErrorCode::kInvalidArgument);
  CHECK(connect("known", server.public_key).ok());
  // Known since the reload.
  std::ofstream(clients) << known.public_key << " 4242\n" << unknown.public_key << " 4243\n";
  daemon.signal(SIGHUP);
  CHECK(eventually([&] { return connect("unknown", server.public_key).ok(); }));
}

TEST_CASE("where a daemon named by HEARTH_TCP does not answer, none is started instead") {
  const Sandbox sandbox;
  const Result<ipc::CurveKeys> keys = ipc::make_curve_keys();
  REQUIRE(keys.ok());
  const fs::path key_file = sandbox.path() / "key";
  REQUIRE(ipc::write_secret_key(key_file, *keys).ok());
  const auto run_says = [&](const std::string& file) {
    const fs::path out = sandbox.path() / "out";
    const pid_t pid = start_program(
        {"/usr/bin/env", "HEARTH_TCP=127.0.0.1:1", "HEARTH_TCP_SERVER_KEY=" + keys->public_key,
         "HEARTH_TCP_KEY_FILE=" + file, "XDG_RUNTIME_DIR=" + sandbox.path().string(),
         "HEARTH_ALLOW_ROOT=1", program("hearth").string(), "run", "tiny", "x"},
        out);
    const std::optional<int> how = wait_for_exit(pid, kPatienceMs);
    REQUIRE(how.has_value());
    CHECK(WEXITSTATUS(*how) == 3);
    CHECK_FALSE(fs::exists(sandbox.path() / "hearth"));
    return text_of(out);
  };
  const std::string unanswered = run_says(key_file.string());
  CHECK_MESSAGE(unanswered.find("tcp_clients_file") != std::string::npos, unanswered);
  CHECK_MESSAGE(unanswered.find(keys->public_key) != std::string::npos, unanswered);
  CHECK(run_says("").find("HEARTH_TCP_KEY_FILE") != std::string::npos);
}

TEST_CASE("TCP without keys is refused at start") {
  const Sandbox sandbox;
  const fs::path log = sandbox.path() / "log";
  const pid_t pid = start_program(
      {program("hearthd").string(), "--allow-root", "--config", "/dev/null", "--runtime-dir",
       sandbox.runtime().string(), "--set", "server.tcp=\"127.0.0.1:1\""},
      log);
  const std::optional<int> how = wait_for_exit(pid, kPatienceMs);
  REQUIRE(how.has_value());
  CHECK(WEXITSTATUS(*how) == 1);
  CHECK(text_of(log).find("tcp_secret_file") != std::string::npos);
}

}  // namespace
}  // namespace hearth::e2e
