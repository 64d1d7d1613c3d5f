// One model on two devices, with real workers: texts, prefixes, deaths and errors.

#include <doctest/doctest.h>
#include <signal.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "tests/e2e/command.h"
#include "tests/e2e/daemon.h"

namespace hearth::e2e {
namespace {

/// Two devices, which are the same CPU.
std::vector<std::string> on_two(std::vector<std::string> more = {}) {
  std::vector<std::string> settings = {"devices.left.threads=1", "devices.right.threads=1",
                                       "models.tiny.devices=[\"left\", \"right\"]"};
  settings.insert(settings.end(), more.begin(), more.end());
  return settings;
}

ipc::ModelEntry tiny_entry(ipc::Client& client) {
  const Result<ipc::ModelsReply> reply = client.models();
  REQUIRE(reply.ok());
  REQUIRE(reply->models.size() == 1);
  return reply->models.front();
}

std::vector<pid_t> loaded_pids(ipc::Client& client) {
  const Result<ipc::LoadReply> reply = client.load({.model = "tiny"});
  REQUIRE_MESSAGE(reply.ok(), (reply.ok() ? "" : reply.error().message));
  const ipc::ModelEntry entry = tiny_entry(client);
  REQUIRE(entry.replicas.size() == 2);
  std::vector<pid_t> pids;
  for (const ipc::ReplicaEntry& replica : entry.replicas) {
    CHECK(replica.state == "resident");
    pids.push_back(replica.worker_pid);
  }
  CHECK(pids[0] != pids[1]);
  return pids;
}

ipc::GenerateRequest numbered(int number, int32_t max_tokens) {
  std::string prompt;
  for (int i = 0; i < 30; ++i) prompt += number % 2 == 0 ? "the sea and " : "a stone or ";
  return seeded(static_cast<uint64_t>(number), max_tokens, prompt + std::to_string(number));
}

TEST_CASE("replicas share the requests, keep prefixes and write the texts of one worker") {
  Sandbox sandbox;
  std::map<int, std::vector<std::vector<int32_t>>> want;
  {
    const Daemon alone(sandbox, {}, Company::kAlone);
    ipc::Client client = alone.connect();
    for (int i = 0; i < 8; ++i) want[i] = run(client, numbered(i, 60)).ids;
  }
  const Daemon daemon(sandbox, on_two({"worker.prefix_store=false"}), Company::kAlone);
  ipc::Client client = daemon.connect();
  loaded_pids(client);
  for (int i = 0; i < 8; ++i) {
    REQUIRE(client.start(numbered(i, 60), std::to_string(i)).ok());
  }
  const std::map<std::string, Answer> answers = collect(client, 8);
  for (int i = 0; i < 8; ++i) {
    const Answer& answer = answers.at(std::to_string(i));
    REQUIRE_MESSAGE(answer.done, why(answer));
    CHECK(answer.ids == want[i]);
  }
  CHECK(eventually([&] {
    const ipc::StatsReply stats = daemon.stats();
    return stats.workers.size() == 2 &&
           std::ranges::all_of(stats.workers, [](const ipc::WorkerStats& worker) {
             return worker.snapshot.prompt_tokens_total > 0;
           });
  }));
  // Each of the two beginnings is at one of them.
  for (int i = 0; i < 8; ++i) {
    const Answer again = run(client, numbered(i + 10, 5));
    REQUIRE_MESSAGE(again.done, why(again));
    CHECK(again.done->usage.cached_tokens > 0);
  }
  CHECK(run_hearth(sandbox, "models").out.find("tiny on left: resident") != std::string::npos);
}

TEST_CASE("requests of a replica that is killed go on at the other one with the same texts") {
  Sandbox sandbox;
  const Daemon daemon(sandbox, on_two(), Company::kAlone);
  ipc::Client client = daemon.connect();
  const std::vector<pid_t> pids = loaded_pids(client);
  std::map<int, std::vector<std::vector<int32_t>>> want;
  for (int i = 0; i < 6; ++i) want[i] = run(client, numbered(i, 600)).ids;
  for (int i = 0; i < 6; ++i) {
    REQUIRE(client.start(numbered(i, 600), std::to_string(i)).ok());
  }
  REQUIRE(eventually([&] {
    const auto replicas = tiny_entry(client).replicas;
    return replicas[0].requests > 0 && replicas[1].requests > 0;
  }));
  ::kill(pids[1], SIGKILL);
  const std::map<std::string, Answer> answers = collect(client, 6);
  for (int i = 0; i < 6; ++i) {
    const Answer& answer = answers.at(std::to_string(i));
    REQUIRE_MESSAGE(answer.done, why(answer));
    CHECK(answer.ids == want[i]);
  }
  CHECK(tiny_entry(client).replicas[0].worker_pid == pids[0]);
  const std::vector<pid_t> after = loaded_pids(client);
  CHECK(after[0] == pids[0]);
  CHECK(after[1] != pids[1]);
}

TEST_CASE("a device that cannot be used leaves its requests to the other one") {
  Sandbox sandbox;
  const Daemon daemon(sandbox, on_two({"devices.right.memory_bytes=1000"}), Company::kAlone);
  ipc::Client client = daemon.connect();
  for (int i = 0; i < 4; ++i) {
    const Answer answer = run(client, numbered(i, 10));
    REQUIRE_MESSAGE(answer.done, why(answer));
  }
  REQUIRE(eventually([&] { return tiny_entry(client).replicas.back().state == "failed"; }));
  const ipc::ModelEntry entry = tiny_entry(client);
  CHECK(entry.state == "resident");
  CHECK(entry.replicas[1].problem.find("devices.right.memory_bytes is 1000") != std::string::npos);
  CHECK(run_hearth(sandbox, "ps").out.find("tiny on right: failed") != std::string::npos);
}

}  // namespace
}  // namespace hearth::e2e
