// Models that sleep, with the real daemon and worker: memory, texts and prefixes.

#include <doctest/doctest.h>
#include <signal.h>

#include <fstream>
#include <string>
#include <vector>

#include "tests/e2e/command.h"
#include "tests/e2e/daemon.h"
#include "tests/e2e/tiny_model.h"

namespace hearth::e2e {
namespace {

ipc::GenerateRequest sea_prompt(const std::string& model) {
  ipc::GenerateRequest request = seeded(5, 40);
  request.model = model;
  request.prompt_ids.clear();
  request.prompt.clear();
  for (int i = 0; i < 40; ++i) request.prompt += "the sea and the stone ";
  return request;
}

ipc::ModelEntry slept_entry(ipc::Client& client, const std::string& model) {
  const Result<ipc::ModelsReply> reply = client.models();
  REQUIRE(reply.ok());
  for (const ipc::ModelEntry& entry : reply->models) {
    if (entry.name == model) return entry;
  }
  FAIL("no model " << model);
  return {};
}

void fall_asleep(ipc::Client& client, const std::string& model) {
  const Result<ipc::UnloadReply> reply = client.unload({.model = model, .keep = true});
  REQUIRE_MESSAGE(reply.ok(), (reply.ok() ? "" : reply.error().message));
  CHECK(reply->asleep);
  CHECK(slept_entry(client, model).state == "asleep");
}

TEST_CASE("a model that sleeps wakes with its process, its prefixes and its texts") {
  Sandbox sandbox;
  const Daemon daemon(sandbox, {}, Company::kAlone);
  ipc::Client client = daemon.connect();
  const Answer first = run(client, sea_prompt("tiny"));
  REQUIRE_MESSAGE(first.done, why(first));
  const ipc::ModelEntry awake = slept_entry(client, "tiny");
  for (int round = 0; round < 3; ++round) {
    CAPTURE(round);
    fall_asleep(client, "tiny");
    const ipc::ModelEntry asleep = slept_entry(client, "tiny");
    CHECK(asleep.worker_pid == awake.worker_pid);
    CHECK(asleep.memory_bytes < awake.memory_bytes);
    if (round == 1) {
      REQUIRE(client.load({.model = "tiny"}).ok());
      CHECK(slept_entry(client, "tiny").state == "resident");
    }
    const Answer again = run(client, sea_prompt("tiny"));
    REQUIRE_MESSAGE(again.done, why(again));
    CHECK(again.ids == first.ids);
    CHECK(again.done->usage.cached_tokens > 0);
    CHECK(again.done->usage.cached_disk_tokens == 0);
    CHECK(slept_entry(client, "tiny").worker_pid == awake.worker_pid);
  }
}

TEST_CASE("a worker that is killed asleep loses nothing") {
  Sandbox sandbox;
  const Daemon daemon(sandbox, {"worker.prefix_restore=always"}, Company::kAlone);
  ipc::Client client = daemon.connect();
  const Answer first = run(client, sea_prompt("tiny"));
  REQUIRE_MESSAGE(first.done, why(first));
  REQUIRE(eventually([&] { return daemon.stats().workers[0].snapshot.store.chunks_saved > 0; }));
  fall_asleep(client, "tiny");
  ::kill(slept_entry(client, "tiny").worker_pid, SIGKILL);
  REQUIRE(eventually([&] { return slept_entry(client, "tiny").state != "asleep"; }));
  const Answer again = run(client, sea_prompt("tiny"));
  REQUIRE_MESSAGE(again.done, why(again));
  CHECK(again.ids == first.ids);
  CHECK(again.done->resumed == 0);
  CHECK(again.done->usage.cached_tokens > 0);  // from disk
}

TEST_CASE("a file that changes while its model sleeps is loaded again") {
  Sandbox sandbox;
  const Daemon daemon(sandbox, {}, Company::kAlone);
  ipc::Client client = daemon.connect();
  const Answer first = run(client, sea_prompt("tiny"));
  REQUIRE_MESSAGE(first.done, why(first));
  fall_asleep(client, "tiny");
  const pid_t pid = slept_entry(client, "tiny").worker_pid;
  write_tiny_model(sandbox.path() / "other.gguf", 9);
  std::filesystem::rename(sandbox.path() / "other.gguf", sandbox.models() / "tiny.gguf");
  const Answer other = run(client, sea_prompt("tiny"));
  REQUIRE_MESSAGE(other.done, why(other));
  CHECK(other.ids != first.ids);
  CHECK(slept_entry(client, "tiny").worker_pid != pid);
}

TEST_CASE("a role is exchanged while the other model sleeps, from the command line") {
  Sandbox sandbox;
  write_tiny_model(sandbox.models() / "one.gguf", 1);
  write_tiny_model(sandbox.models() / "two.gguf", 2);
  const Daemon daemon(sandbox, {"roles.default=one"}, Company::kAlone);
  ipc::Client client = daemon.connect();
  const Answer one = run(client, sea_prompt("default"));
  REQUIRE(client.load({.model = "two"}).ok());
  const pid_t pids[] = {slept_entry(client, "one").worker_pid,
                        slept_entry(client, "two").worker_pid};
  CHECK(run_hearth(sandbox, "unload two --keep").out == "two asleep\n");
  CHECK(run_hearth(sandbox, "models").out.find("asleep") != std::string::npos);
  REQUIRE(client.swap({.role = "default", .model = "two"}).ok());
  fall_asleep(client, "one");
  const Answer two = run(client, sea_prompt("default"));
  REQUIRE(client.swap({.role = "default", .model = "one"}).ok());
  const Answer again = run(client, sea_prompt("default"));
  REQUIRE_MESSAGE((one.done && two.done && again.done), why(again));
  CHECK(two.ids != one.ids);
  CHECK(again.ids == one.ids);
  CHECK(slept_entry(client, "one").worker_pid == pids[0]);
  CHECK(slept_entry(client, "two").worker_pid == pids[1]);
}

}  // namespace
}  // namespace hearth::e2e
