// Models with a state per sequence, served by the real daemon that is killed again and again: the
// texts go on unchanged, and prefixes come back from the disk with their states.

#include <doctest/doctest.h>
#include <fmt/core.h>
#include <signal.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/e2e/command.h"
#include "tests/e2e/daemon.h"
#include "tests/e2e/family_file.h"
#include "tests/golden/family_model.h"
#include "tests/skip.h"

namespace hearth::e2e {
namespace {

constexpr int32_t kContext = 4096;
constexpr int32_t kKilledAfter = 200;  // tokens
// Far more than a worker computes before the client has seen those tokens and killed it.
constexpr int32_t kOutput = 2500;

/// A token for each character, and two more: three blocks and a part of one.
const std::string kPrompt = "Once upon a time there was a fox that knew it all";

void write_model(const std::string& family, const Sandbox& sandbox) {
  golden::FamilyModel model = golden::read_family(family);
  model.metadata[model.architecture + ".context_length"] = kContext;
  write_family(model, sandbox.models() / (family + ".gguf"));
}

ipc::GenerateRequest request_for(const std::string& family, uint64_t seed) {
  ipc::GenerateRequest request = seeded(seed, kOutput, kPrompt);
  request.model = family;
  return request;
}

bool saved_any(const Daemon& daemon) {
  return eventually([&] {
    const ipc::StatsReply reply = daemon.stats();
    return !reply.workers.empty() && reply.workers.front().snapshot.store.chunks_saved >= 2;
  });
}

/// Runs the request and kills the process in the middle of its answer, once these tokens have come.
Answer disturbed(ipc::Client& client, const ipc::GenerateRequest& request, pid_t process) {
  bool killed = false;
  Answer answer = run(client, request, [&](const Answer& so_far) {
    if (killed || so_far.ids[0].size() < kKilledAfter) return;
    killed = true;
    ::kill(process, SIGKILL);
  });
  CHECK(killed);
  return answer;
}

/// Runs the request on a worker that is killed in the middle of its answer.
Answer resumed(const Daemon& daemon, ipc::Client& client, const ipc::GenerateRequest& request) {
  Answer answer;
  // If this process did not run for long the answer may have ended before the kill. Then it is
  // asked again, of another worker.
  CHECK(eventually([&] {
    const pid_t worker = daemon.wait_for_worker();
    answer = disturbed(client, request, worker);
    REQUIRE_MESSAGE(answer.done.has_value(), why(answer));
    if (answer.done->resumed > 0) return true;
    ipc::GenerateRequest next = request;
    next.max_tokens = 1;
    REQUIRE(run(client, next).done.has_value());
    return false;
  }));
  return answer;
}

std::vector<std::string> families_with_state() {
  std::vector<std::string> out;
  for (const std::string& family : golden::family_names()) {
    for (const golden::FamilyTensor& tensor : golden::read_family(family).tensors) {
      const bool of_state = tensor.name.find("ssm_") != std::string::npos ||
                            tensor.name.find("shortconv") != std::string::npos ||
                            tensor.name.find("time_mix") != std::string::npos;
      if (!of_state && !family.starts_with("minimax_01")) continue;
      out.push_back(family);
      break;
    }
  }
  return out;
}

/// What the commands show of the state that was restored, at token `restored` of the prompt.
void check_commands(const Sandbox& sandbox, const std::string& family, int32_t restored) {
  const CommandOutcome inspected = run_hearth(sandbox, "inspect --json " + family);
  const auto groups = nlohmann::json::parse(inspected.out)["model"]["kv"]["groups"];
  CHECK(groups.back()["state_bytes"] > 0);
  const CommandOutcome listed = run_hearth(sandbox, "cache ls --model " + family);
  const std::string line = fmt::format("  state at token {}  ", restored);
  const size_t at = listed.out.find(line);
  REQUIRE_MESSAGE(at != std::string::npos, listed.out, listed.err);
  const size_t begin = listed.out.rfind('\n', at) + 1;
  const std::string name = listed.out.substr(begin, at - begin);
  const CommandOutcome pinned = run_hearth(sandbox, "cache pin " + name);
  CHECK_MESSAGE(pinned.status == 0, pinned.err);
  CHECK(run_hearth(sandbox, "cache ls --model " + family).out.find("pinned") != std::string::npos);
}

TEST_CASE("a model with a state, killed with -9: the text is the same, and prefixes from disk") {
  const Sandbox sandbox;
  std::vector<std::string> families = {"qwen35", "minimax_01", "rwkv7"};
  if (tests::full_counts()) families = families_with_state();
  for (const std::string& family : families) {
    CAPTURE(family);
    write_model(family, sandbox);
    const ipc::GenerateRequest request = request_for(family, 7);
    Answer want;
    {
      Daemon daemon(sandbox, {"worker.prefix_restore=always"});
      ipc::Client client = daemon.connect();
      want = run(client, request);
      REQUIRE_MESSAGE(want.done.has_value(), why(want));
      CHECK(want.done->usage.cached_tokens == 0);

      const Answer other = run(client, request_for(family, 8));
      REQUIRE_MESSAGE(other.done.has_value(), why(other));
      REQUIRE(saved_any(daemon));
      for (const auto& [seed, expected] : {std::pair<int, const Answer*>{7, &want}, {8, &other}}) {
        const Answer answer =
            resumed(daemon, client, request_for(family, static_cast<uint64_t>(seed)));
        CHECK(answer.done->resumed == 1);
        CHECK(answer.ids == expected->ids);
      }
      disturbed(client, request, daemon.pid());
      daemon.wait_for_exit();
    }
    const Daemon daemon(sandbox, {"worker.prefix_restore=always"});
    ipc::Client client = daemon.connect();
    const Answer answer = run(client, request);
    REQUIRE_MESSAGE(answer.done.has_value(), why(answer));
    CHECK(answer.ids == want.ids);
    const ipc::Usage& usage = answer.done->usage;
    CHECK(usage.cached_disk_tokens == (usage.prompt_tokens - 1) / 16 * 16);
    CHECK(usage.cached_disk_tokens > 0);
    check_commands(sandbox, family, usage.cached_disk_tokens);
  }
}

}  // namespace
}  // namespace hearth::e2e
