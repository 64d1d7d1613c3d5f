// What happens when a process dies: worker, client or broker; and how the daemon stops.

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "ipc/files/paths.h"
#include "tests/e2e/daemon.h"
#include "tests/e2e/notify_socket.h"
#include "tests/e2e/tiny_model.h"

namespace hearth::e2e {
namespace {

// Long enough to be killed in the middle on any machine, short enough to finish soon.
constexpr int32_t kLong = 3000;

// An orphan may stay a zombie until it is reaped: it is dead, too.
bool alive(pid_t pid) {
  const std::string stat = text_of("/proc/" + std::to_string(pid) + "/stat");
  const size_t name_end = stat.rfind(')');
  return name_end != std::string::npos && stat.substr(name_end, 3) != ") Z";
}

TEST_CASE("a worker killed in mid-stream is replaced, and the text continues unchanged") {
  const Sandbox sandbox;
  const Daemon daemon(sandbox);
  ipc::Client client = daemon.connect();
  ipc::GenerateRequest request = seeded(77, kLong);
  request.n = 2;
  request.stop = {"no such thing in it, \xC3\xA9"};
  const Answer undisturbed = run(client, request);
  REQUIRE(undisturbed.done);

  const pid_t worker = daemon.wait_for_worker();
  bool killed = false;
  const Answer answer = run(client, request, [&](const Answer& so_far) {
    if (!killed && so_far.ids[0].size() > 200) {
      killed = true;
      ::kill(worker, SIGKILL);
    }
  });
  REQUIRE(killed);
  REQUIRE_MESSAGE(answer.done, (answer.error ? answer.error->message : ""));
  CHECK(answer.done->resumed == 1);
  CHECK(answer.ids == undisturbed.ids);
  CHECK(answer.texts == undisturbed.texts);
  CHECK(answer.done->usage.output_tokens == 2 * kLong);
  CHECK(answer.done->finish_reasons == undisturbed.done->finish_reasons);
  int started = 0;
  for (const ipc::Event& event : answer.events) {
    started += std::holds_alternative<ipc::StartedEvent>(event) ? 1 : 0;
  }
  CHECK(started == 1);
  CHECK(daemon.wait_for_worker() != worker);
  CHECK(daemon.stats().workers[0].restarts == 1);
}

TEST_CASE("a request present at two deaths ends with poison; the others continue") {
  const Sandbox sandbox;
  const Daemon daemon(sandbox, {}, Company::kAlone);  // present at both, for certain
  ipc::Client client = daemon.connect();
  std::vector<pid_t> killed;
  const Answer answer = run(client, seeded(7, kTinyContext - 100), [&](const Answer& so_far) {
    if (killed.size() == 2 || so_far.ids[0].size() < 100 * (killed.size() + 1)) return;
    pid_t worker = daemon.wait_for_worker();
    while (!killed.empty() && worker == killed.front()) worker = daemon.wait_for_worker();
    ::kill(worker, SIGKILL);
    killed.push_back(worker);
  });
  CHECK(killed.size() == 2);
  REQUIRE(answer.error);
  CHECK(answer.error->code == ErrorCode::kPoison);
  CHECK(answer.error->message.find("signal 9") != std::string::npos);
  CHECK(run(client, seeded(7, 10)).done.has_value());
}

TEST_CASE("a worker that is stopped for a moment goes on with the same text") {
  const Sandbox sandbox;
  const Daemon daemon(sandbox);
  ipc::Client client = daemon.connect();
  ipc::Client other = daemon.connect();
  const Answer undisturbed = run(client, seeded(78, kLong));
  REQUIRE(undisturbed.done);
  const pid_t worker = daemon.wait_for_worker();
  int stops = 0;
  const Answer answer = run(client, seeded(78, kLong), [&](const Answer& so_far) {
    if (stops == 3 || so_far.ids[0].size() < 400 * static_cast<size_t>(stops + 1)) return;
    ++stops;
    ::kill(worker, SIGSTOP);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    CHECK(other.ping().ok());
    CHECK(other.models().ok());
    ::kill(worker, SIGCONT);
  });
  CHECK(stops == 3);
  REQUIRE_MESSAGE(answer.done, why(answer));
  CHECK(answer.ids == undisturbed.ids);
  CHECK(answer.done->resumed == 0);
  CHECK(daemon.wait_for_worker() == worker);
}

TEST_CASE("health names a worker that does not run, until it runs again") {
  const Sandbox sandbox;
  const Daemon daemon(sandbox);
  ipc::Client client = daemon.connect();
  REQUIRE(run(client, seeded(1, 3)).done);
  REQUIRE(client.health()->status == "ok");
  const pid_t worker = daemon.wait_for_worker();
  ::kill(worker, SIGSTOP);
  CHECK(eventually([&] { return client.health()->status == "degraded"; }));
  const ipc::HealthReply health = client.health().value();
  REQUIRE(health.problems.size() == 1);
  CHECK(health.problems[0].find("model tiny") != std::string::npos);
  CHECK(health.problems[0].find("no sign of life") != std::string::npos);
  ::kill(worker, SIGCONT);
  CHECK(eventually([&] { return client.health()->status == "ok"; }));
  CHECK(daemon.wait_for_worker() == worker);
}

TEST_CASE("a model whose file was deleted is served as long as it is in memory") {
  const Sandbox sandbox;
  const Daemon daemon(sandbox);
  ipc::Client client = daemon.connect();
  const Answer before = run(client, seeded(1, 30));
  REQUIRE(before.done);
  std::filesystem::remove(sandbox.models() / "tiny.gguf");
  ipc::GenerateRequest request = seeded(1, 30);
  request.model = "tiny";
  const Answer after = run(client, request);
  REQUIRE_MESSAGE(after.done, why(after));
  CHECK(after.ids == before.ids);
  REQUIRE(client.unload({.model = "tiny"}).ok());
  const Answer gone = run(client, request);
  REQUIRE(gone.error);
  CHECK(gone.error->code == ErrorCode::kNotFound);
}

TEST_CASE("started without standard descriptors, the daemon keeps sockets and files off them") {
  const Sandbox sandbox;
  write_tiny_model(sandbox.models() / "tiny.gguf", 1);
  const pid_t pid = start_program(
      {"/bin/sh", "-c", R"(exec "$0" "$@" <&- >&- 2>&-)", program("hearthd").string(),
       "--allow-root", "--config", "/dev/null", "--runtime-dir", sandbox.runtime().string(),
       "--model-dir", sandbox.models().string(), "--set", "worker.kv_bytes=33554432", "--set",
       "server.state_dir=" + sandbox.state().string()});
  CHECK(eventually([&] { return ipc::Client::connect({.runtime_dir = sandbox.runtime()}).ok(); }));
  const std::string of_process = "/proc/" + std::to_string(pid);
  for (const char* fd : {"0", "1", "2"}) {
    CHECK(std::filesystem::read_symlink(of_process + "/fd/" + fd) == "/dev/null");
  }
  // Prompts are in memory, so no core is written.
  const std::string limits = text_of(of_process + "/limits");
  const size_t core = limits.find("Max core file size");
  REQUIRE(core != std::string::npos);
  CHECK(std::stoi(limits.substr(core + std::strlen("Max core file size"))) == 0);
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
}

TEST_CASE("a client that is stopped, and one with unread output, delay no other and are whole") {
  const Sandbox sandbox;
  const Daemon daemon(sandbox);
  ipc::Client client = daemon.connect();
  const Answer undisturbed = run(client, seeded(78, kLong));
  REQUIRE(undisturbed.done);
  // Lines of JSON, more of them than a pipe holds.
  const auto start = [&](const std::filesystem::path& output) {
    return start_program(
        {"/usr/bin/env", "HEARTH_RUNTIME_DIR=" + daemon.runtime().string(),
         program("hearth").string(), "run", "tiny", "the", "--json", "--seed", "9", "--max-tokens",
         std::to_string(kLong), "--logprobs", "3", "--ignore-eos", "true"},
        output);
  };
  // The text and ids of a client's lines, however it was cut into deltas.
  const auto content = [](const std::string& lines) {
    std::string text, ids;
    std::istringstream in(lines);
    for (std::string line; std::getline(in, line);) {
      const nlohmann::json event = nlohmann::json::parse(line);
      if (event.at("event") != "delta") continue;
      text += event.at("text").get<std::string>();
      for (const auto& id : event.at("ids")) ids += id.dump() + " ";
    }
    return text + "\n" + ids;
  };
  const auto plain = sandbox.path() / "plain";
  REQUIRE(wait_for_exit(start(plain), kPatienceMs) == 0);
  const std::string want = content(text_of(plain));
  REQUIRE(want.size() > static_cast<size_t>(kLong));

  const auto stopped_output = sandbox.path() / "stopped";
  const pid_t stopped = start(stopped_output);
  REQUIRE(eventually([&] { return text_of(stopped_output).find("delta") != std::string::npos; }));
  ::kill(stopped, SIGSTOP);
  const auto unread_output = sandbox.path() / "unread";
  REQUIRE(::mkfifo(unread_output.c_str(), 0600) == 0);
  const int reader = ::open(unread_output.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
  REQUIRE(reader >= 0);
  const pid_t unread = start(unread_output);
  // Both streams end in the daemon; others are served meanwhile.
  const Answer meanwhile = run(client, seeded(78, kLong));
  REQUIRE_MESSAGE(meanwhile.done, why(meanwhile));
  CHECK(meanwhile.ids == undisturbed.ids);
  CHECK(eventually([&] { return client.ps()->requests.empty(); }));
  ::kill(stopped, SIGCONT);
  CHECK(wait_for_exit(stopped, kPatienceMs) == 0);
  CHECK(content(text_of(stopped_output)) == want);
  std::string read;
  std::optional<int> status;
  REQUIRE(eventually([&] {
    char bytes[65536];
    for (ssize_t n; (n = ::read(reader, bytes, sizeof bytes)) > 0;) {
      read.append(bytes, static_cast<size_t>(n));
    }
    status = wait_for_exit(unread, 0);
    return status.has_value();
  }));
  char bytes[65536];
  for (ssize_t n; (n = ::read(reader, bytes, sizeof bytes)) > 0;) {
    read.append(bytes, static_cast<size_t>(n));
  }
  ::close(reader);
  CHECK(status == 0);
  CHECK(content(read) == want);
}

TEST_CASE("a killed client's requests end and their blocks are free") {
  const Sandbox sandbox;
  const Daemon daemon(sandbox);
  ipc::Client watcher = daemon.connect();
  run(watcher, seeded(1, 1));
  ::setenv("HEARTH_RUNTIME_DIR", daemon.runtime().c_str(), 1);
  const std::filesystem::path output = sandbox.path() / "story";
  const pid_t hearth =
      start_program({program("hearth").string(), "run", "tiny", "the abc", "--max-tokens",
                     std::to_string(kTinyContext - 100), "--ignore-eos", "true"},
                    output);
  ::unsetenv("HEARTH_RUNTIME_DIR");
  REQUIRE(eventually([&] {
    const Result<ipc::PsReply> ps = watcher.ps();
    return ps.ok() && !ps->requests.empty() && ps->requests[0].output_tokens > 20;
  }));
  ::kill(hearth, SIGKILL);
  REQUIRE(wait_for_exit(hearth, kPatienceMs));
  CHECK(daemon.wait_until_idle());
  CHECK(daemon.stats().requests_cancelled == 1);
}

TEST_CASE("a connection that closes while its request waits leaves nothing allocated") {
  const Sandbox sandbox;
  const Daemon daemon(sandbox);
  {
    ipc::Client client = daemon.connect();
    REQUIRE(client.start(seeded(1, kTinyContext - 100)).ok());  // the model is not even loaded
  }
  ipc::Client client = daemon.connect();
  CHECK(run(client, seeded(1, 5)).done.has_value());
  CHECK(daemon.wait_until_idle());
}

TEST_CASE("when the broker is killed clients get an error, however patient they are") {
  const Sandbox sandbox;
  Daemon daemon(sandbox);
  ipc::ClientOptions options = daemon.client_options();
  // The end of the connection is noticed, and not only the silence.
  options.lost_after_ms = 10 * kPatienceMs;
  ipc::Client client = Daemon::connect(options);
  bool killed = false;
  const Answer answer = run(client, seeded(1, kTinyContext - 100), [&](const Answer& so_far) {
    if (killed || so_far.ids[0].size() <= 50) return;
    killed = true;
    daemon.signal(SIGKILL);
  });
  REQUIRE(killed);
  REQUIRE(answer.error);
  CHECK(answer.error->code == ErrorCode::kLost);
}

TEST_CASE("when the broker is killed its worker ends") {
  const Sandbox sandbox;
  Daemon daemon(sandbox);
  ipc::Client client = daemon.connect();
  REQUIRE(client.start(seeded(1, kTinyContext - 100)).ok());
  const pid_t worker = daemon.wait_for_worker();
  daemon.signal(SIGKILL);
  CHECK(eventually([&] { return !alive(worker); }));
}

TEST_CASE("after a kill the daemon starts again on the same directory, as another instance") {
  const Sandbox sandbox;
  std::string first;
  std::vector<std::vector<int32_t>> ids;
  {
    Daemon daemon(sandbox);
    ipc::Client client = daemon.connect();
    first = client.daemon().instance;
    ids = run(client, seeded(3, 30)).ids;
    daemon.signal(SIGKILL);
    daemon.wait_for_exit();
  }
  const Daemon daemon(sandbox);
  ipc::Client client = daemon.connect();
  CHECK(client.daemon().instance != first);
  CHECK(run(client, seeded(3, 30)).ids == ids);
}

TEST_CASE("SIGTERM: live requests end, new ones are refused, the exit status is 0") {
  const Sandbox sandbox;
  Daemon daemon(sandbox);
  ipc::Client client = daemon.connect();
  ipc::Client late = daemon.connect();
  bool asked = false;
  const Answer answer = run(client, seeded(1, kLong), [&](const Answer& so_far) {
    if (asked || so_far.ids[0].size() < 50) return;
    asked = true;
    daemon.signal(SIGTERM);
    Result<ipc::PongReply> pong = late.ping();
    while (pong.ok() && !pong->draining) pong = late.ping();
    const Answer refused = run(late, seeded(1, 5));
    REQUIRE(refused.error);
    CHECK(refused.error->code == ErrorCode::kUnavailable);
  });
  REQUIRE(asked);
  REQUIRE_MESSAGE(answer.done, why(answer));
  CHECK(answer.ids[0].size() == kLong);
  const int status = daemon.wait_for_exit();
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK_FALSE(std::filesystem::exists(ipc::api_socket(daemon.runtime())));
}

TEST_CASE(
    "a drain that takes too long ends the requests with an error; a second signal ends them at "
    "once") {
  const Sandbox sandbox;
  {
    Daemon daemon(sandbox, {"server.drain_timeout_ms=100"});
    ipc::Client client = daemon.connect();
    bool asked = false;
    const Answer answer = run(client, seeded(1, kTinyContext - 100), [&](const Answer& so_far) {
      if (!asked && so_far.ids[0].size() > 50) {
        asked = true;
        daemon.signal(SIGTERM);
      }
    });
    REQUIRE(answer.error);
    CHECK(
        (answer.error->code == ErrorCode::kUnavailable || answer.error->code == ErrorCode::kLost));
    CHECK(WEXITSTATUS(daemon.wait_for_exit()) == 0);
  }
  Daemon daemon(sandbox);
  ipc::Client client = daemon.connect();
  REQUIRE(client.start(seeded(1, kTinyContext - 100)).ok());
  daemon.wait_for_worker();
  daemon.signal(SIGTERM);
  REQUIRE(eventually([&] {
    const Result<ipc::PongReply> pong = client.ping();
    return !pong.ok() || pong->draining;
  }));
  daemon.signal(SIGTERM);
  CHECK(WIFEXITED(daemon.wait_for_exit()));
}

TEST_CASE("a worker stopped by hand drains, and the next request starts another") {
  const Sandbox sandbox;
  const Daemon daemon(sandbox);
  ipc::Client client = daemon.connect();
  run(client, seeded(1, 1));
  const pid_t worker = daemon.wait_for_worker();
  bool stopped = false;
  const Answer answer = run(client, seeded(1, kLong), [&](const Answer& so_far) {
    if (!stopped && so_far.ids[0].size() > 50) {
      stopped = true;
      ::kill(worker, SIGTERM);
    }
  });
  REQUIRE_MESSAGE(answer.done, why(answer));
  CHECK(answer.done->resumed == 0);
  CHECK(answer.ids[0].size() == kLong);
  CHECK(eventually([&] { return !alive(worker); }));
  CHECK(run(client, seeded(1, 5)).done.has_value());
}

TEST_CASE("a worker stopped while it starts leaves no request waiting") {
  for (const int delay_ms : {0, 2, 5, 10, 20, 40}) {
    CAPTURE(delay_ms);
    const Sandbox sandbox;
    const Daemon daemon(sandbox);
    ipc::Client client = daemon.connect();
    for (uint64_t seed = 1; seed <= 3; ++seed) REQUIRE(client.start(seeded(seed, 20)).ok());
    pid_t worker = -1;
    REQUIRE(eventually(
        [&] {
          const ipc::StatsReply stats = daemon.stats();
          if (!stats.workers.empty()) worker = stats.workers[0].pid;
          return worker > 0;
        },
        1));
    std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms));
    ::kill(worker, SIGTERM);
    for (const auto& [id, answer] : collect(client, 3)) {
      REQUIRE_MESSAGE(answer.done, why(answer));
      CHECK(answer.ids[0].size() == 20);
    }
  }
}

TEST_CASE("systemd is notified when the daemon is ready, alive and stopping") {
  const Sandbox sandbox;
  NotifySocket manager(sandbox.path());
  ::setenv("WATCHDOG_USEC", "100000", 1);
  Daemon daemon(sandbox);
  ::unsetenv("WATCHDOG_USEC");
  CHECK(manager.hears("READY=1\nSTATUS="));
  CHECK(manager.hears("WATCHDOG=1"));
  ipc::Client client = daemon.connect();
  REQUIRE(run(client, seeded(1, 5)).done);
  CHECK(manager.hears("models: tiny"));
  CHECK(manager.heard().find("STOPPING=1") == std::string::npos);
  daemon.signal(SIGTERM);
  CHECK(manager.hears("STOPPING=1"));
  CHECK(WIFEXITED(daemon.wait_for_exit()));
}

TEST_CASE("a second daemon on the same directory is refused and names the first") {
  const Sandbox sandbox;
  const Daemon daemon(sandbox);
  const std::filesystem::path output = sandbox.path() / "second";
  const pid_t second = start_program({program("hearthd").string(), "--config", "/dev/null",
                                      "--runtime-dir", daemon.runtime().string()},
                                     output);
  const std::optional<int> status = wait_for_exit(second, kPatienceMs);
  REQUIRE(status);
  CHECK(WEXITSTATUS(*status) == 1);
  const std::string text = text_of(output);
  CHECK(text.find("already serves") != std::string::npos);
  CHECK(text.find(std::to_string(daemon.pid())) != std::string::npos);
  ipc::Client client = daemon.connect();
  CHECK(run(client, seeded(1, 5)).done.has_value());
}

}  // namespace
}  // namespace hearth::e2e
