// Requests with adapters in the broker: names become files, a text goes on only with the same
// files, and an adapter leaves a model's memory when no request uses it.

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "tests/unit/daemon/broker_sim.h"

namespace hearth::broker {
namespace {

namespace fs = std::filesystem;

const Caller kAdapterUser = BrokerSim::user(1000);

struct AdapterSim {
  AdapterSim() : sim({{"a", {}}, {"b", {}}}, settings()) {
    fs::create_directories(folder());
    put("style", 9);
    put("math", 5);
  }
  static Config settings() {
    Config config;
    config.worker.restart_delay_ms = 10;
    config.worker.restart_delay_max_ms = 50;
    return config;
  }
  fs::path folder() const { return sim.models.dirs().front() / "adapters"; }
  void put(const std::string& name, size_t bytes) const {
    std::ofstream(folder() / (name + ".gguf")) << std::string(bytes, 'x');
  }
  void ask(const std::string& id, const std::string& adapter, const std::string& model = "a") {
    ipc::GenerateRequest request;
    request.model = model;
    request.prompt = "p";
    request.adapter = adapter;
    request.max_tokens = 40;
    request.seed = 7;
    sim.dispatcher.submit(kAdapterUser, id, std::move(request), 10);
  }
  bool run_until_ended(const std::string& id) {
    return sim.run_until([&] { return sim.answer(kAdapterUser.peer, id).ends == 1; });
  }
  std::string error(const std::string& id) {
    const Error* error = sim.answer(kAdapterUser.peer, id).error();
    return error == nullptr ? "" : error->message;
  }
  std::vector<std::string> paths(const std::string& model = "a") const {
    return sim.worker(model)->adapter_paths;
  }

  mutable BrokerSim sim;
};

TEST_CASE("adapters: a worker gets the files that a request names, in order") {
  AdapterSim s;
  s.ask("r", "style=0.5,math");
  REQUIRE(s.run_until_ended("r"));
  CHECK(s.error("r").empty());
  CHECK(s.paths() == std::vector<std::string>{s.folder() / "style.gguf", s.folder() / "math.gguf"});
  s.ask("plain", "");
  REQUIRE(s.run_until_ended("plain"));
  CHECK(s.paths().empty());
  // A name in another case, and with its suffix.
  s.ask("case", "STYLE.gguf");
  REQUIRE(s.run_until_ended("case"));
  CHECK(s.paths() == std::vector<std::string>{s.folder() / "style.gguf"});
}

TEST_CASE("adapters: a model's name may end in one, unless a model has that name") {
  AdapterSim s;
  s.ask("r", "", "a:style");
  REQUIRE(s.run_until_ended("r"));
  CHECK(s.paths() == std::vector<std::string>{s.folder() / "style.gguf"});
  s.ask("none", "", "a:rhyme");
  CHECK(s.error("none").find("a:rhyme") != std::string::npos);
  s.ask("nowhere", "", "c:style");
  CHECK(s.error("nowhere").find("no model c") != std::string::npos);
  std::ofstream(s.sim.models.dirs().front() / "b:style.gguf") << "x";
  s.sim.models.rescan();
  CHECK(s.sim.models.resolve("b:style")->name == "b:style");
}

TEST_CASE("adapters: unknown names and malformed ones are refused at once") {
  AdapterSim s;
  s.ask("unknown", "rhyme");
  CHECK(s.error("unknown").starts_with("no adapter rhyme; there are: math, style. An adapter is"));
  s.ask("malformed", "style=x");
  CHECK(s.error("malformed").find("want a scale") != std::string::npos);
  s.ask("path", "/etc/passwd");
  CHECK(s.error("path").starts_with("no adapter /etc/passwd;"));
  CHECK(s.sim.dispatcher.requests().size() == 0);
}

TEST_CASE("adapters: none of them is listed as a model") {
  AdapterSim s;
  s.sim.models.rescan();
  CHECK(s.sim.models.models().size() == 2);
  CHECK(s.sim.models.adapters().size() == 2);
  CHECK(s.sim.models.resolve("default")->name == "a");
  CHECK_FALSE(s.sim.models.resolve("style").ok());
}

TEST_CASE("adapters: after a worker's death a text goes on with the same files alone") {
  for (const bool changes : {false, true}) {
    CAPTURE(changes);
    AdapterSim s;
    s.ask("r", "style");
    REQUIRE(s.sim.run_until([&] { return s.sim.answer(kAdapterUser.peer, "r").ids.size() > 3; }));
    if (changes) s.put("style", 10);
    s.sim.worker("a")->die();
    REQUIRE(s.run_until_ended("r"));
    if (changes) {
      CHECK(s.error("r").find("changed after this text began") != std::string::npos);
    } else {
      CHECK(s.error("r").empty());
      CHECK(s.paths() == std::vector<std::string>{s.folder() / "style.gguf"});
      CHECK(s.sim.answer(kAdapterUser.peer, "r").ids.size() == 40);
    }
  }
}

TEST_CASE("adapters: one is unloaded when no request uses it, and its memory counts until then") {
  AdapterSim s;
  const auto unload = [&](const std::string& id, const std::string& adapter) -> SimAnswer& {
    s.sim.verbs.unload(BrokerSim::admin(), id, {.model = "a", .adapter = adapter});
    return s.sim.answer(BrokerSim::admin().peer, id);
  };
  CHECK_FALSE(unload("not loaded", "style").as<ipc::UnloadReply>()->was_resident);
  s.ask("r", "style");
  REQUIRE(s.run_until_ended("r"));
  const Residency::Resident& resident = *s.sim.residency.find("a");
  const uint64_t before = s.sim.residency.memory_bytes(resident);
  s.sim.worker("a")->set_adapters({{"style", 1000, 2}});
  CHECK(s.sim.residency.memory_bytes(resident) == before + 1000);
  const Error* const busy = unload("busy", "style").error();
  REQUIRE(busy != nullptr);
  CHECK(busy->code == ErrorCode::kBusy);
  CHECK(busy->message == "adapter style: 2 requests use it");
  s.sim.worker("a")->set_adapters({{"style", 1000, 0}});
  CHECK(unload("gone", "Style.gguf").as<ipc::UnloadReply>()->was_resident);
  CHECK(s.sim.residency.memory_bytes(resident) == before);
  CHECK(s.sim.worker("a")->is_ready());
  // Only an administrator may.
  s.sim.verbs.unload(kAdapterUser, "user", {.model = "a", .adapter = "style"});
  CHECK(s.sim.answer(kAdapterUser.peer, "user").error()->code == ErrorCode::kForbidden);
}

}  // namespace
}  // namespace hearth::broker
