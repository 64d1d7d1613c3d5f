// Adapters in a real daemon: several at once next to requests without one, after a worker's death,
// from disk after a restart, over HTTP and from the command line; and files with an error.

#include <doctest/doctest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/e2e/command.h"
#include "tests/e2e/daemon.h"
#include "tests/e2e/http_client.h"
#include "tests/e2e/tiny_model.h"

namespace hearth::e2e {
namespace {

namespace fs = std::filesystem;

struct AdapterSandbox : Sandbox {
  AdapterSandbox() {
    fs::create_directories(folder());
    write_tiny_model(models() / "tiny.gguf", 1);
    write_tiny_adapter(folder() / "style.gguf", 5);
    write_tiny_adapter(folder() / "math.gguf", 6);
  }
  fs::path folder() const { return models() / "adapters"; }
};

ipc::GenerateRequest with_adapter(const std::string& adapter, int32_t max_tokens = 48) {
  ipc::GenerateRequest request = seeded(9, max_tokens, "the tall old tree that the wind");
  request.adapter = adapter;
  return request;
}

std::map<std::string, int32_t> in_memory(const Daemon& daemon) {
  std::map<std::string, int32_t> out;
  const ipc::StatsReply stats = daemon.stats();
  for (const ipc::AdapterUse& each : stats.workers.at(0).snapshot.adapters) {
    out[each.name] = each.requests;
  }
  return out;
}

TEST_CASE("adapters: each request gets the text of its own, together and after a worker's death") {
  const AdapterSandbox sandbox;
  const Daemon daemon(sandbox, {}, Company::kAlone);
  ipc::Client client = daemon.connect();
  const std::vector<std::string> kinds = {"", "style", "math", "style=-0.5", "style,math=2"};
  std::map<std::string, std::vector<int32_t>> want;
  for (const std::string& kind : kinds) {
    const Answer answer = run(client, with_adapter(kind));
    REQUIRE_MESSAGE(answer.done, why(answer));
    for (const auto& [other, ids] : want) {
      INFO(kind << " and " << other);
      CHECK(answer.ids[0] != ids);
    }
    want[kind] = answer.ids[0];
  }
  for (const std::string& kind : kinds) {
    REQUIRE(client.start(with_adapter(kind), "with:" + kind).ok());
  }
  auto answers = collect(client, 5);
  for (const std::string& kind : kinds) CHECK(answers["with:" + kind].ids[0] == want[kind]);

  ipc::GenerateRequest longer = with_adapter("style", 6000);
  longer.n = 2;
  const Answer undisturbed = run(client, longer);
  REQUIRE_MESSAGE(undisturbed.done, why(undisturbed));
  bool killed = false;
  const Answer answer = run(client, longer, [&](const Answer& so_far) {
    if (killed || so_far.ids[0].size() < 200) return;
    killed = true;
    ::kill(daemon.wait_for_worker(), SIGKILL);
  });
  REQUIRE_MESSAGE(answer.done, why(answer));
  CHECK(answer.done->resumed == 1);
  CHECK(answer.ids == undisturbed.ids);
}

TEST_CASE("adapters: a stored prefix is found under the same adapter alone, after a restart, too") {
  const AdapterSandbox sandbox;
  std::vector<int32_t> want;
  for (const bool restarted : {false, true}) {
    CAPTURE(restarted);
    const Daemon daemon(sandbox, {"worker.prefix_restore=always"}, Company::kAlone);
    ipc::Client client = daemon.connect();
    ipc::GenerateRequest request = with_adapter("style", 8);
    request.prompt.clear();
    for (int i = 0; i < 40; ++i) request.prompt += "the tall old tree ";
    const Answer first = run(client, request);
    REQUIRE_MESSAGE(first.done, why(first));
    CHECK((first.done->usage.cached_tokens > 0) == restarted);
    if (restarted) CHECK(first.ids[0] == want);
    want = first.ids[0];
    const Answer again = run(client, request);
    CHECK(again.done->usage.cached_tokens > 0);
    CHECK(again.ids[0] == want);
    for (const char* other : {"", "math", "style=0.5"}) {
      INFO(other);
      ipc::GenerateRequest differs = request;
      differs.adapter = other;
      const Answer answer = run(client, differs);
      REQUIRE_MESSAGE(answer.done, why(answer));
      if (!restarted) CHECK(answer.done->usage.cached_tokens == 0);
      CHECK(answer.ids[0] != want);
    }
    daemon.signal(SIGTERM);
    CHECK(const_cast<Daemon&>(daemon).wait_for_exit() == 0);
  }
}

TEST_CASE("adapters: listed, counted, unloaded when no request uses them, and replaced") {
  const AdapterSandbox sandbox;
  const Daemon daemon(sandbox, {}, Company::kAlone);
  ipc::Client client = daemon.connect();
  const auto models = client.models();
  REQUIRE(models.ok());
  CHECK(models->models.size() == 1);
  REQUIRE(models->adapters.size() == 2);
  CHECK(models->adapters[0].name == "math");
  CHECK(models->adapters[1].file_bytes == fs::file_size(sandbox.folder() / "style.gguf"));

  const Answer first = run(client, with_adapter("style"));
  REQUIRE_MESSAGE(first.done, why(first));
  REQUIRE(eventually([&] {
    return in_memory(daemon) == std::map<std::string, int32_t>{{"style", 0}};
  }));
  // Long enough to be there when the adapter is to be unloaded.
  ipc::Client other = daemon.connect();
  REQUIRE(other.start(with_adapter("style", kTinyContext - 100), "long").ok());
  REQUIRE(eventually([&] { return in_memory(daemon)["style"] == 1; }));
  const auto busy = client.unload({.model = "tiny", .adapter = "style"});
  REQUIRE_FALSE(busy.ok());
  CHECK(busy.error().code == ErrorCode::kBusy);
  REQUIRE(client.cancel("long").ok());
  collect(other, 1);
  REQUIRE(eventually([&] { return in_memory(daemon)["style"] == 0; }));
  const auto gone = client.unload({.model = "tiny", .adapter = "style"});
  REQUIRE(gone.ok());
  CHECK(gone->was_resident);
  REQUIRE(eventually([&] { return in_memory(daemon).empty(); }));
  CHECK(daemon.stats().workers.at(0).state == "ready");

  // Another file of that name.
  write_tiny_adapter(sandbox.folder() / "new", 7);
  fs::rename(sandbox.folder() / "new", sandbox.folder() / "style.gguf");
  const Answer replaced = run(client, with_adapter("style"));
  REQUIRE_MESSAGE(replaced.done, why(replaced));
  CHECK(replaced.ids != first.ids);
}

TEST_CASE("adapters: a file that does not fit is refused by file and tensor; the model serves on") {
  const AdapterSandbox sandbox;
  write_tiny_adapter(sandbox.folder() / "wide.gguf", 5, AdapterFlaw::kOtherWidth);
  write_tiny_adapter(sandbox.folder() / "nan.gguf", 5, AdapterFlaw::kNan);
  std::ofstream(sandbox.folder() / "text.gguf") << "not a model";
  fs::copy(sandbox.models() / "tiny.gguf", sandbox.folder() / "whole.gguf");
  const Daemon daemon(sandbox, {}, Company::kAlone);
  ipc::Client client = daemon.connect();
  const auto refusal = [&](const std::string& adapter) {
    const Answer answer = run(client, with_adapter(adapter));
    REQUIRE(answer.error);
    return answer.error->message;
  };
  CHECK(
      refusal("wide").find("adapter wide: blk.0.attn_q.weight.lora_a: shape [65,4], want [64,4]") !=
      std::string::npos);
  CHECK(refusal("nan").find("blk.0.attn_q.weight.lora_a") != std::string::npos);
  CHECK(refusal("text").starts_with("adapter text: "));
  CHECK(refusal("whole").find("general.type") != std::string::npos);
  CHECK(refusal("none").starts_with("no adapter none; there are: math, nan, style, text, "));
  CHECK(refusal("style=x").find("want a scale") != std::string::npos);
  const Answer fine = run(client, with_adapter("style"));
  CHECK_MESSAGE(fine.done, why(fine));
  CHECK(daemon.stats().workers.at(0).restarts == 0);
}

TEST_CASE("adapters: over HTTP and from the command line") {
  const AdapterSandbox sandbox;
  const Daemon daemon(sandbox, {}, Company::kAlone);
  HttpClient http(daemon);
  const auto text = [&](const std::string& model, const std::string& member) {
    const HttpAnswer answer =
        http.ask("POST", "/v1/completions",
                 R"({"model":")" + model + R"(","prompt":"the old tree","seed":3,"max_tokens":24)" +
                     member + "}");
    INFO(answer.body);
    REQUIRE(answer.status == 200);
    return nlohmann::json::parse(answer.body)["choices"][0]["text"].get<std::string>();
  };
  const std::string plain = text("tiny", "");
  const std::string styled = text("tiny", R"(,"adapter":"style")");
  CHECK(styled != plain);
  CHECK(text("tiny:style", "") == styled);
  CHECK(text("default:style", "") == styled);
  CHECK(text("tiny", R"(,"adapter":"style=0")") == plain);

  const auto ran =
      run_hearth(sandbox, "run tiny --adapter style --seed 3 --max-tokens 24 'the old tree'");
  CHECK(ran.status == 0);
  CHECK(ran.out.starts_with(styled));
  const auto listed = run_hearth(sandbox, "models");
  CHECK(listed.out.find("adapters: math (") != std::string::npos);
  const auto unloaded = run_hearth(sandbox, "unload tiny --adapter math");
  CHECK(unloaded.status == 0);
  CHECK(unloaded.out == "math was not in memory\n");
}

}  // namespace
}  // namespace hearth::e2e
