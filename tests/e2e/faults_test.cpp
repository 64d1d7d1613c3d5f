// What happens when something dies: workers, clients, the broker; and how it stops.

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "ipc/paths.h"
#include "tests/e2e/daemon.h"
#include "tests/e2e/tiny_model.h"

namespace hearth::e2e {
namespace {

// Long enough to be killed in the middle on any machine, short enough to finish soon.
constexpr int32_t kLong = 6000;

// An orphan may stay as a zombie until somebody reaps it: that is dead too.
bool alive(pid_t pid) {
  const std::string stat = text_of("/proc/" + std::to_string(pid) + "/stat");
  const size_t name_end = stat.rfind(')');
  return name_end != std::string::npos && stat.substr(name_end, 3) != ") Z";
}

TEST_CASE(
    "a worker that is killed in mid-stream is replaced, and the text goes on as if nothing was") {
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

TEST_CASE("a request present at two deaths ends with poison; the others go on") {
  const Sandbox sandbox;
  const Daemon daemon(sandbox);
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

TEST_CASE("a connection that closes while its request waits leaves nothing behind") {
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

TEST_CASE("when the broker is killed clients say so within two seconds") {
  const Sandbox sandbox;
  Daemon daemon(sandbox);
  ipc::Client client = daemon.connect();
  int64_t killed_at = 0;
  const Answer answer = run(client, seeded(1, kTinyContext - 100), [&](const Answer& so_far) {
    if (killed_at == 0 && so_far.ids[0].size() > 50) {
      daemon.signal(SIGKILL);
      killed_at = now_ms();
    }
  });
  const int64_t noticed_ms = now_ms() - killed_at;
  REQUIRE(killed_at > 0);
  REQUIRE(answer.error);
  CHECK(answer.error->code == ErrorCode::kLost);
  CHECK(noticed_ms < 2500);  // the promise is two seconds; the rest is for a busy machine
}

TEST_CASE("when the broker is killed its worker ends within a second") {
  const Sandbox sandbox;
  Daemon daemon(sandbox);
  ipc::Client client = daemon.connect();
  REQUIRE(client.start(seeded(1, kTinyContext - 100)).ok());
  const pid_t worker = daemon.wait_for_worker();
  daemon.signal(SIGKILL);
  const int64_t killed_at = now_ms();
  CHECK(eventually([&] { return !alive(worker); }));
  CHECK(now_ms() - killed_at < 2000);  // a second, on a machine that is not busy
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

TEST_CASE("a drain that takes too long ends the requests with an error; a second signal at once") {
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

TEST_CASE("a worker that is told to stop by hand drains, and the next request starts another") {
  const Sandbox sandbox;
  const Daemon daemon(sandbox);
  ipc::Client client = daemon.connect();
  run(client, seeded(1, 1));
  const pid_t worker = daemon.wait_for_worker();
  bool told = false;
  const Answer answer = run(client, seeded(1, kLong), [&](const Answer& so_far) {
    if (!told && so_far.ids[0].size() > 50) {
      told = true;
      ::kill(worker, SIGTERM);
    }
  });
  REQUIRE_MESSAGE(answer.done, why(answer));
  CHECK(answer.done->resumed == 0);
  CHECK(answer.ids[0].size() == kLong);
  CHECK(eventually([&] { return !alive(worker); }));
  CHECK(run(client, seeded(1, 5)).done.has_value());
}

TEST_CASE("a second daemon on the same directory is refused and says who is there") {
  const Sandbox sandbox;
  const Daemon daemon(sandbox);
  const std::filesystem::path output = sandbox.path() / "second";
  const pid_t second = start_program({program("hearthd").string(), "--config", "/dev/null",
                                      "--runtime-dir", daemon.runtime().string()},
                                     output);
  const std::optional<int> status = wait_for_exit(second, kPatienceMs);
  REQUIRE(status);
  CHECK(WEXITSTATUS(*status) == 1);
  const std::string said = text_of(output);
  CHECK(said.find("already serves") != std::string::npos);
  CHECK(said.find(std::to_string(daemon.pid())) != std::string::npos);
  ipc::Client client = daemon.connect();
  CHECK(run(client, seeded(1, 5)).done.has_value());
}

}  // namespace
}  // namespace hearth::e2e
