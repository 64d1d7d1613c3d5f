// One model in stages on two devices, with a real worker: texts, prefixes, reports and refusals.

#include <doctest/doctest.h>
#include <signal.h>

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "models/random_model.h"
#include "tests/e2e/command.h"
#include "tests/e2e/daemon.h"
#include "tests/e2e/tiny_model.h"
#include "tests/paths.h"

namespace hearth::e2e {
namespace {

/// Two devices, which are the same CPU.
std::vector<std::string> on_two(std::vector<std::string> more = {}) {
  std::vector<std::string> settings = {"devices.left.threads=1", "devices.right.threads=1",
                                       "models.tiny.stages=[\"left\", \"right\"]"};
  settings.insert(settings.end(), more.begin(), more.end());
  return settings;
}

ipc::GenerateRequest numbered(int number, int32_t max_tokens) {
  std::string prompt;
  for (int i = 0; i < 40; ++i) prompt += number % 2 == 0 ? "the sea and " : "a stone or ";
  return seeded(static_cast<uint64_t>(number), max_tokens, prompt + std::to_string(number));
}

using Texts = std::vector<std::vector<std::vector<int32_t>>>;

/// Tokens of six requests, computed by one device.
Texts texts_of_one(const Sandbox& sandbox) {
  const Daemon alone(sandbox, {}, Company::kAlone);
  ipc::Client client = alone.connect();
  Texts texts;
  for (int i = 0; i < 6; ++i) texts.push_back(run(client, numbered(i, 40)).ids);
  return texts;
}

/// The same requests together, and one of them again from its prefix.
void check_texts(ipc::Client& client, const Texts& want) {
  for (int i = 0; i < 6; ++i) REQUIRE(client.start(numbered(i, 40), std::to_string(i)).ok());
  const std::map<std::string, Answer> answers = collect(client, 6);
  for (int i = 0; i < 6; ++i) {
    const Answer& answer = answers.at(std::to_string(i));
    REQUIRE_MESSAGE(answer.done, why(answer));
    CHECK(answer.ids == want[static_cast<size_t>(i)]);
  }
  const Answer again = run(client, numbered(0, 40));
  REQUIRE_MESSAGE(again.done, why(again));
  CHECK(again.done->usage.cached_tokens > 0);
  CHECK(again.ids == want[0]);
}

TEST_CASE("a model in stages writes the texts of one device, from its prefixes, too") {
  Sandbox sandbox;
  const Texts want = texts_of_one(sandbox);
  const Daemon daemon(sandbox, on_two(), Company::kAlone);
  ipc::Client client = daemon.connect();
  check_texts(client, want);

  const Result<ipc::ModelsReply> models = client.models();
  REQUIRE(models.ok());
  const std::vector<ipc::StageUse>& stages = models->models.front().stages;
  REQUIRE(stages.size() == 2);
  CHECK(stages[0].device == "left");
  CHECK(stages[0].end_layer == stages[1].first_layer);
  CHECK(stages[0].weight_bytes + stages[1].weight_bytes == models->models.front().weight_bytes);
  CHECK(run_hearth(sandbox, "ps").out.find("tiny on left: layers 0 to ") != std::string::npos);
  CHECK(run_hearth(sandbox, "unload --keep tiny").err.find("cannot sleep") != std::string::npos);
}

TEST_CASE("a model in shares writes the texts of one device, from its prefixes, too") {
  Sandbox sandbox;
  const Texts want = texts_of_one(sandbox);
  const std::vector<std::string> split = {"devices.left.threads=1", "devices.right.threads=1",
                                          "models.tiny.split=[\"left\", \"right\"]"};
  {
    const Daemon daemon(sandbox, split, Company::kAlone);
    ipc::Client client = daemon.connect();
    check_texts(client, want);
    const Result<ipc::ModelsReply> models = client.models();
    REQUIRE(models.ok());
    const std::vector<ipc::StageUse>& shares = models->models.front().stages;
    REQUIRE(shares.size() == 2);
    CHECK(shares[1].device == "right");
    CHECK((shares[0].share && shares[1].share));
    CHECK(shares[0].kv_bytes == shares[1].kv_bytes);
    CHECK(shares[0].end_layer == shares[1].end_layer);
    CHECK(shares[0].weight_bytes + shares[1].weight_bytes == models->models.front().weight_bytes);
    CHECK(run_hearth(sandbox, "ps").out.find("tiny on right: a share of layers 0 to ") !=
          std::string::npos);
  }
  {
    const Daemon daemon(sandbox, split, Company::kAlone);
    ipc::Client client = daemon.connect();
    const Answer stored = run(client, numbered(1, 40));
    REQUIRE_MESSAGE(stored.done, why(stored));
    CHECK(stored.ids == want[1]);
  }
  std::vector<std::string> small = split;
  small.push_back("devices.right.memory_bytes=1000");
  const Daemon daemon(sandbox, small, Company::kAlone);
  ipc::Client client = daemon.connect();
  const Answer answer = run(client, numbered(0, 5));
  REQUIRE(answer.error);
  CHECK(answer.error->code == ErrorCode::kOutOfMemory);
  CHECK(answer.error->message.find(
            "split: the model does not fit; left: a share of layers 0 to ") != std::string::npos);
}

TEST_CASE("experts on another device: the texts of one, and each device's part of the memory") {
  Sandbox sandbox;
  std::filesystem::create_directories(sandbox.models());
  write_tiny_model(sandbox.models() / "tiny.gguf", 1);
  const auto shape = models::find_shape("gpt-oss-tiny");
  REQUIRE(shape.ok());
  const auto model = models::RandomModel::create(*shape, "MXFP4", 1);
  REQUIRE(model.ok());
  REQUIRE(models::write_random_model(*model, sandbox.models() / "moe.gguf", 1, {}).ok());
  const auto ask = [](ipc::Client& client) {
    ipc::GenerateRequest request = numbered(1, 20);
    request.model = "moe";
    const Answer answer = run(client, request);
    REQUIRE_MESSAGE(answer.done, why(answer));
    return answer.ids;
  };
  std::vector<std::vector<int32_t>> want;
  {
    const Daemon alone(sandbox, {}, Company::kAlone);
    ipc::Client client = alone.connect();
    want = ask(client);
  }
  const std::vector<std::string> apart = {"worker.device=cpu", "worker.threads=1",
                                          "devices.right.threads=1", "models.moe.experts=right"};
  {
    const Daemon daemon(sandbox, apart, Company::kAlone);
    ipc::Client client = daemon.connect();
    CHECK(ask(client) == want);
    const std::string ps = run_hearth(sandbox, "ps").out;
    CHECK_MESSAGE(ps.find("moe on cpu: layers 0 to 1, ") != std::string::npos, ps);
    CHECK(ps.find("moe on right: experts of layers 0 to 1, ") != std::string::npos);
  }
  std::vector<std::string> small = apart;
  small.push_back("devices.right.memory_bytes=1000");
  const Daemon daemon(sandbox, small, Company::kAlone);
  ipc::Client client = daemon.connect();
  ipc::GenerateRequest request = numbered(1, 20);
  request.model = "moe";
  const Answer answer = run(client, request);
  REQUIRE(answer.error);
  CHECK(answer.error->message.find("experts: right: weights ") != std::string::npos);
  request.model = "tiny";
  CHECK(run(client, request).done);
}

TEST_CASE("a model whose stages do not fit is refused with the numbers") {
  Sandbox sandbox;
  const Daemon daemon(sandbox,
                      on_two({"devices.right.memory_bytes=1000", "devices.left.memory_bytes=1000"}),
                      Company::kAlone);
  ipc::Client client = daemon.connect();
  const Answer answer = run(client, numbered(0, 5));
  REQUIRE(answer.error);
  CHECK(answer.error->code == ErrorCode::kOutOfMemory);
  CHECK(answer.error->message.find("stages: the layers do not fit; left: layers 0 to ") !=
        std::string::npos);
}

TEST_CASE("requests of a model in stages go on when its worker is killed, with the same texts") {
  Sandbox sandbox;
  const Daemon daemon(sandbox, on_two(), Company::kAlone);
  ipc::Client client = daemon.connect();
  std::vector<std::vector<std::vector<int32_t>>> want;
  for (int i = 0; i < 3; ++i) want.push_back(run(client, numbered(i, 600)).ids);
  const pid_t pid = daemon.wait_for_worker();
  ipc::Client others = daemon.connect();
  for (int i = 0; i < 2; ++i) REQUIRE(others.start(numbered(i, 600), std::to_string(i)).ok());
  bool killed = false;
  const Answer last = run(client, numbered(2, 600), [&](const Answer&) {
    if (!std::exchange(killed, true)) ::kill(pid, SIGKILL);
  });
  REQUIRE_MESSAGE(last.done, why(last));
  CHECK(last.done->resumed == 1);
  std::map<std::string, Answer> answers = collect(others, 2);
  answers.emplace("2", last);
  for (int i = 0; i < 3; ++i) {
    const Answer& answer = answers.at(std::to_string(i));
    REQUIRE_MESSAGE(answer.done, why(answer));
    CHECK(answer.ids == want[static_cast<size_t>(i)]);
  }
  CHECK(daemon.wait_for_worker() != pid);
}

TEST_CASE("hearth plan shows replicas and their budgets") {
  Sandbox sandbox;
  const std::string plan =
      "plan " + hearth::tests::source_path("models/demo/tales.gguf") + " --read-mib 8";
  const std::string out = run_hearth(sandbox, plan + " --replica 1:1GiB --replica 2:1000").out;
  CHECK(out.find("replica 1         layers 0 to ") != std::string::npos);
  CHECK(out.find(", of 1.0 GiB: fits") != std::string::npos);
  CHECK(out.find(": does NOT fit, takes ") != std::string::npos);
  CHECK(run_hearth(sandbox, plan + " --replica 0").err.find("--replica 0: want THREADS") !=
        std::string::npos);
}

TEST_CASE("hearth plan shows the stages") {
  Sandbox sandbox;
  const std::string plan =
      "plan " + hearth::tests::source_path("models/demo/tales.gguf") + " --read-mib 8";
  const std::string out = run_hearth(sandbox, plan + " --stage 1 --stage 3:1GiB").out;
  CHECK(out.find("stage 1           layers 0 to 0, ") != std::string::npos);
  CHECK(out.find(", of 1.0 GiB") != std::string::npos);
  CHECK(run_hearth(sandbox, plan + " --stage 0").err.find("want THREADS") != std::string::npos);
  const std::string split = run_hearth(sandbox, plan + " --split --stage 1 --stage 1").out;
  CHECK(split.find("stage 1           a share of layers 0 to ") != std::string::npos);
  CHECK(run_hearth(sandbox, plan + " --split --stage 1").err.find("want --stage for each of two") !=
        std::string::npos);
  const std::string mixed = run_hearth(sandbox, plan + " --stage cuda:0:1GiB --stage 2").out;
  CHECK(mixed.find("cuda:0            layers 0 to ") != std::string::npos);
  CHECK(run_hearth(sandbox, plan + " --stage cuda:0:1000 --stage 2")
            .out.find("; cuda:0: layers 0 to 0 take ") != std::string::npos);
  CHECK(run_hearth(sandbox, plan + " --stage 1:1000 --stage 1:1000")
            .out.find("does not start    stages: the layers do not fit") != std::string::npos);
}

}  // namespace
}  // namespace hearth::e2e
