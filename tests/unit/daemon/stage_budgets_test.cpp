// A model in stages: its configuration, and what it takes of the budgets of several devices.

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "daemon/broker/config/check.h"
#include "daemon/broker/residency/replicas.h"
#include "tests/unit/daemon/broker_sim.h"

namespace hearth::broker {
namespace {

const Caller kUser = BrokerSim::user(1000);

/// Two stages, each with 5 of weights and 5 of KV.
ModelTraits in_stages() {
  ModelTraits traits;
  traits.stages = {
      {.device = "left", .end_layer = 2, .weight_bytes = 5, .kv_bytes = 5},
      {.device = "right", .first_layer = 2, .end_layer = 4, .weight_bytes = 5, .kv_bytes = 5}};
  return traits;
}

Config on_two(int64_t left_bytes, int64_t right_bytes) {
  Config config;
  config.residency.keep_alive_ms = 0;
  config.residency.turn_ms = 1000;
  config.devices["left"].memory_bytes = left_bytes;
  config.devices["right"].memory_bytes = right_bytes;
  config.models["m"].stages = {"left", "right"};
  config.models["a"].devices = {"left"};
  config.models["b"].devices = {"right"};
  return config;
}

void ask(BrokerSim& sim, const std::string& model) {
  static int number = 0;
  const std::string id = model + std::to_string(++number);
  sim.generate(kUser, id, model, 3);
  REQUIRE(sim.run_until([&] { return sim.answer(kUser.peer, id).ends == 1; }));
  REQUIRE(sim.answer(kUser.peer, id).as<ipc::DoneEvent>() != nullptr);
}

TEST_CASE("a model in stages shares the budget of each of its devices") {
  BrokerSim sim({{"m", in_stages()}, {"a", {}}, {"b", {}}}, on_two(30, 30));  // 20 each
  for (const char* const model : {"m", "a", "b"}) ask(sim, model);
  CHECK(sim.worker("m") != nullptr);  // 10 and 20 fit on either side
  CHECK(sim.worker("a") != nullptr);
  CHECK(sim.worker("b") != nullptr);
  CHECK(sim.residency.memory_bytes(*sim.residency.find("m")) == 20);
  CHECK(sim.residency.find("m")->plan->stages == in_stages().stages);
}

TEST_CASE("a model in stages leaves when one of its devices lacks room, and comes back") {
  BrokerSim sim({{"m", in_stages()}, {"a", {}}, {"b", {}}}, on_two(40, 25));
  for (const char* const model : {"m", "a"}) ask(sim, model);
  CHECK(sim.worker("m") != nullptr);
  ask(sim, "b");  // 10 and 20 are too much for the right one
  CHECK(sim.worker("m") == nullptr);
  CHECK(sim.worker("a") != nullptr);
  ask(sim, "m");
  CHECK(sim.worker("m") != nullptr);
  CHECK(sim.worker("a") != nullptr);
  CHECK(sim.worker("b") == nullptr);
}

TEST_CASE("the tightest budget bounds the KV of all stages") {
  ModelTraits traits = in_stages();
  traits.kv_bytes = 100;
  traits.kv_floor_bytes = 10;
  traits.stages[0].kv_bytes = traits.stages[1].kv_bytes = 50;
  BrokerSim sim({{"m", traits}, {"b", {}}}, on_two(200, 60));
  for (const char* const model : {"b", "m"}) ask(sim, model);
  REQUIRE(sim.worker("b") != nullptr);
  // Of the right one's 60 the other model has 20 and the weights 5: 35 of KV, which is 70 of both.
  CHECK(sim.worker("m")->kv_bound_bytes() == 70);
}

TEST_CASE("the worker of a model in stages receives its devices") {
  Config config = on_two(30, 0);
  config.devices["left"].cores = {0};
  config.devices["left"].threads = 1;
  config.devices["right"].cores = {0, 0};
  config.residency.memory_bytes = 100;
  const std::vector<ModelFile> replicas = replicas_of({.name = "m", .path = "m.gguf"}, config);
  REQUIRE(replicas.size() == 1);
  CHECK(replicas.front().name == "m");
  WorkerConfig worker;
  ipc::ServeSettings settings;
  use_device(replicas.front(), config, &worker, &settings);
  CHECK(worker.device == "cpu");
  CHECK(settings.stages == std::vector<ipc::StageSettings>{
                               {.device = "left", .cores = {0}, .threads = 1, .memory_bytes = 30},
                               {.device = "right", .cores = {0, 0}}});
  CHECK(settings.memory_bytes == 130);
  CHECK(settings.cores == std::vector<int32_t>{0, 0, 0});
  config.devices["right"].cores.clear();
  settings = {};
  use_device(replicas.front(), config, &worker, &settings);
  CHECK(settings.cores.empty());
}

TEST_CASE("the worker of a model in shares receives its devices") {
  Config config;
  config.devices["left"] = {.threads = 1, .memory_bytes = 30};
  config.models["m"].split = {"left", "cpu"};
  const ModelFile file = replicas_of({.name = "m", .path = "m.gguf"}, config).front();
  CHECK(file.stages == std::vector<std::string>{"left", "cpu"});
  WorkerConfig worker;
  ipc::ServeSettings settings;
  use_device(file, config, &worker, &settings);
  CHECK(settings.split);
  REQUIRE(settings.stages.size() == 2);
  CHECK(settings.stages[0].memory_bytes == 30);
}

TEST_CASE("stages on a GPU are the CUDA worker's, which has a CPU, too") {
  Config config;
  config.models["m"].stages = {"cpu", "cuda:1"};
  const auto settings_of = [&](WorkerConfig* worker) {
    ipc::ServeSettings settings;
    use_device(replicas_of({.name = "m", .path = "m.gguf"}, config).front(), config, worker,
               &settings);
    return settings;
  };
  WorkerConfig worker;
  ipc::ServeSettings settings = settings_of(&worker);
  CHECK(worker.device == "cuda:1");
  CHECK_FALSE(settings.spare_stages);
  REQUIRE(settings.stages.size() == 2);
  CHECK(settings.stages[0].kind == "cpu");
  CHECK(settings.stages[1].kind == "cuda:1");

  config.models["m"].stages = {"auto"};
  CHECK(config.stages_of("m") == std::vector<std::string>{"cuda:0", "cpu"});
  config.devices["big"] = {.kind = "cuda:1", .memory_bytes = 100};
  config.devices["half"] = {.cores = {0, 1}};
  CHECK(config.stages_of("m") == std::vector<std::string>{"big", "half"});
  settings = settings_of(&worker);
  CHECK(settings.spare_stages);
  CHECK(settings.stages[0].kind == "cuda:1");
  CHECK(settings.cores == std::vector<int32_t>{0, 1});
}

TEST_CASE("a model with experts apart has two devices, and shares both budgets") {
  Config config;
  config.worker.device = "cuda:0";
  config.devices["half"] = {.cores = {0, 1}, .memory_bytes = 100};
  config.models["m"].experts = "half";
  config.models["m"].hot_expert_bytes = 7;
  const ModelFile file = replicas_of({.name = "m", .path = "m.gguf"}, config).front();
  CHECK(file.stages == std::vector<std::string>{"cuda:0", "half"});
  WorkerConfig worker = config.worker_of("m");
  ipc::ServeSettings settings;
  use_device(file, config, &worker, &settings);
  CHECK(worker.device == "cuda:0");
  CHECK(settings.experts_apart);
  CHECK(settings.hot_expert_bytes == 7);
  CHECK(settings.stages[1] ==
        ipc::StageSettings{.device = "half", .cores = {0, 1}, .memory_bytes = 100});
}

std::string problem_of(const std::string& model) {
  Config config;
  const std::string devices = "[devices.left]\n[devices.right]\n[devices.gpu]\nkind = \"cuda:0\"\n";
  REQUIRE(apply_toml(devices + "[models.m]\n" + model, "test", &config).ok());
  const Result<void> checked = check_config(config);
  return checked ? "" : checked.error().message;
}

TEST_CASE("stages are checked, with what was met and what was wanted") {
  CHECK(problem_of("stages = [\"left\", \"right\"]").empty());
  const auto refused = [](const std::string& model, const std::string& why) {
    CAPTURE(model);
    CHECK(problem_of(model).find(why) != std::string::npos);
  };
  refused("stages = [\"left\", \"middle\"]", "met \"middle\", want some of auto, cpu");
  refused("stages = [\"left\", \"left\"]", "met \"left\" twice");
  refused("stages = [\"left\"]", "want 2 to 16 devices");
  refused("stages = [\"left\", \"right\"]\ndevices = [\"left\"]", "neither models.m.device");
  refused("stages = [\"left\", \"right\"]\ndevice = \"cpu\"", "neither models.m.device");
  refused("stages = [\"left\", \"auto\"]",
          "auto is of kind auto, want devices of kind cpu or cuda:N");
  Config config;
  const Result<void> text = apply_toml("[models.m]\nstages = \"left\"", "test", &config);
  REQUIRE_FALSE(text.ok());
  CHECK(text.error().message.find("want a list of strings") != std::string::npos);
  CHECK(problem_of("experts = \"left\"").empty());
  refused("hot_expert_bytes = 5", "hot_expert_bytes: want models.m.experts, too");
  refused("experts = \"middle\"", "met \"middle\", want some of auto, cpu");
  refused("experts = \"gpu\"", "gpu is of kind cuda:0, want a device of kind cpu");
  refused("experts = \"left\"\nstages = [\"left\", \"right\"]", "want neither models.m.stages");
  refused("experts = \"left\"\nmapping = \"file\"", "mapping is \"file\"");
  CHECK(problem_of("stages = [\"left\", \"gpu\"]").empty());
  CHECK(problem_of("stages = [\"cuda:0\", \"cuda:1\", \"cpu\"]").empty());
  CHECK(problem_of("stages = \"auto\"").empty());
  CHECK(problem_of("split = [\"left\", \"right\"]").empty());
  refused("split = []", "models.m.split: want 2 to 16 devices");
  refused("split = [\"left\", \"middle\"]", "met \"middle\", want some of auto, cpu");
  refused("split = [\"left\", \"right\"]\nstages = \"auto\"", "want no models.m.stages");
  refused("split = [\"left\", \"right\"]\ndevice = \"cpu\"", "neither models.m.device");
  refused("split = [\"left\", \"right\"]\nexperts = \"left\"", "nor models.m.split");
  refused("split = [\"left\", \"right\"]\nmapping = \"file\"", "mapping is \"file\"");
  refused("stages = [\"left\", \"right\"]\nmapping = \"file\"", "mapping is \"file\"");
}

}  // namespace
}  // namespace hearth::broker
