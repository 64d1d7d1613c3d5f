// One model on several devices: where requests go, and what happens if a worker or a device is
// gone.

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "daemon/broker/config/check.h"
#include "tests/unit/daemon/broker_sim.h"

namespace hearth::broker {
namespace {

const Caller kUser = BrokerSim::user(1000);

Config on_two() {
  Config config;
  config.residency.keep_alive_ms = 0;
  config.residency.turn_ms = 1000;
  config.devices = {{"left", {}}, {"right", {}}};
  config.models["m"].devices = {"left", "right"};
  return config;
}

std::vector<int32_t> whole(uint64_t seed, uint32_t count) {
  std::vector<int32_t> ids;
  for (uint32_t i = 0; i < count; ++i) ids.push_back(BrokerSim::token("m", seed, i));
  return ids;
}

void load(BrokerSim& sim) {
  sim.load("load", "m");
  REQUIRE(sim.run_until([&] { return sim.answer(BrokerSim::admin().peer, "load").ends == 1; }));
  REQUIRE(sim.answer(BrokerSim::admin().peer, "load").as<ipc::LoadReply>() != nullptr);
}

std::string replica_of(const BrokerSim& sim, const std::string& id) {
  std::string replica;
  sim.dispatcher.requests().for_each([&](const LiveRequest& request) {
    if (request.id == id) replica = request.replica;
  });
  return replica;
}

bool ended(BrokerSim& sim, const std::string& id) { return sim.answer(kUser.peer, id).ends == 1; }

TEST_CASE("a model on two devices has two workers, and requests share them") {
  BrokerSim sim({{"m", {}}}, on_two());
  load(sim);
  REQUIRE(sim.workers.size() == 2);
  for (int i = 0; i < 6; ++i) sim.generate(kUser, std::to_string(i), "m", 30, 7 + i);
  sim.step();
  CHECK(sim.worker("m@left")->num_live() == 3);
  CHECK(sim.worker("m@right")->num_live() == 3);
  for (int i = 0; i < 6; ++i) {
    const std::string id = std::to_string(i);
    REQUIRE(sim.run_until([&] { return ended(sim, id); }));
    CHECK(sim.answer(kUser.peer, id).ids == whole(7 + i, 30));
    CHECK(sim.answer(kUser.peer, id).as<ipc::DoneEvent>()->model == "m");
  }
}

TEST_CASE("a request goes where its prefix is, unless many wait there") {
  BrokerSim sim({{"m", {}}}, on_two());
  load(sim);
  const std::string one(600, '1'), two(600, '2');
  sim.generate(kUser, "a", "m", 400, 1, one + "a");
  sim.generate(kUser, "b", "m", 400, 2, two + "b");
  const std::string of_one = replica_of(sim, "a"), of_two = replica_of(sim, "b");
  CHECK(of_one != of_two);
  for (const char* const id : {"c", "d"}) {
    sim.generate(kUser, id, "m", 400, 3, one + id);
    CHECK(replica_of(sim, id) == of_one);
  }
  sim.generate(kUser, "e", "m", 400, 4, one + "e");  // three are there, one is elsewhere
  CHECK(replica_of(sim, "e") == of_one);
  sim.generate(kUser, "f", "m", 400, 5, one + "f");
  CHECK(replica_of(sim, "f") == of_two);
  sim.generate(kUser, "g", "m", 400, 6, two + "g");
  CHECK(replica_of(sim, "g") == of_two);
  // Now both have it.
  sim.generate(kUser, "h", "m", 400, 7, one + "h");
  CHECK(replica_of(sim, "h") == of_two);
}

TEST_CASE("a replica that dies loses no request: they go on at the other one") {
  BrokerSim sim({{"m", {}}}, on_two());
  load(sim);
  for (int i = 0; i < 8; ++i) sim.generate(kUser, std::to_string(i), "m", 100, i);
  REQUIRE(sim.run_until([&] { return sim.answer(kUser.peer, "7").ids.size() > 10; }));
  const pid_t left = sim.worker("m@left")->pid();
  sim.worker("m@right")->die();
  sim.step();
  sim.step();
  for (int i = 0; i < 8; ++i) CHECK(replica_of(sim, std::to_string(i)) == "m@left");
  for (int i = 0; i < 8; ++i) {
    const std::string id = std::to_string(i);
    REQUIRE(sim.run_until([&] { return ended(sim, id); }));
    CHECK(sim.answer(kUser.peer, id).ids == whole(i, 100));
    CHECK(sim.answer(kUser.peer, id).error() == nullptr);
  }
  CHECK(sim.worker("m@left")->pid() == left);
  // The next request starts it again.
  sim.generate(kUser, "next", "m", 5);
  REQUIRE(sim.run_until([&] { return ended(sim, "next"); }));
  CHECK(sim.run_until([&] {
    const FakeWorker* const right = sim.worker("m@right");
    return right != nullptr && right->is_ready();
  }));
}

TEST_CASE("a request that kills its workers is refused in the end; others finish") {
  BrokerSim sim({{"m", {}}}, on_two());
  load(sim);
  sim.deadly[13] = 4;
  sim.generate(kUser, "deadly", "m", 50, 13);
  for (int i = 0; i < 6; ++i) sim.generate(kUser, std::to_string(i), "m", 60, i);
  REQUIRE(sim.run_until([&] { return ended(sim, "deadly"); }));
  REQUIRE(sim.answer(kUser.peer, "deadly").error() != nullptr);
  CHECK(sim.answer(kUser.peer, "deadly").error()->code == ErrorCode::kPoison);
  for (int i = 0; i < 6; ++i) {
    const std::string id = std::to_string(i);
    REQUIRE(sim.run_until([&] { return ended(sim, id); }));
    CHECK(sim.answer(kUser.peer, id).ids == whole(i, 60));
  }
}

TEST_CASE("requests of a device that cannot be used go to the other one") {
  BrokerSim sim({{"m", {}}, {"m@right", {.fails = Error::unavailable("no such device")}}},
                on_two());
  for (int i = 0; i < 6; ++i) sim.generate(kUser, std::to_string(i), "m", 20, i);
  for (int i = 0; i < 6; ++i) {
    const std::string id = std::to_string(i);
    REQUIRE(sim.run_until([&] { return ended(sim, id); }));
    CHECK(sim.answer(kUser.peer, id).ids == whole(i, 20));
  }
  const uint64_t starts = sim.starts;
  for (int i = 0; i < 200; ++i) {
    sim.generate(kUser, "more " + std::to_string(i), "m", 2);
    sim.step(100);
  }
  CHECK(sim.starts == starts);  // it is not tried again while the other one serves
  CHECK(sim.residency.find("m@right")->problem->message == "no such device");
  sim.load("again", "m");
  REQUIRE(sim.run_until([&] { return sim.answer(BrokerSim::admin().peer, "again").ends == 1; }));
  CHECK(sim.answer(BrokerSim::admin().peer, "again").as<ipc::LoadReply>() != nullptr);
  CHECK(sim.starts > starts);
}

TEST_CASE("if no device can be used, requests end with the reason") {
  BrokerSim sim({{"m", {.fails = Error::unavailable("no such device")}}}, on_two());
  sim.generate(kUser, "r", "m", 5);
  REQUIRE(sim.run_until([&] { return ended(sim, "r"); }));
  REQUIRE(sim.answer(kUser.peer, "r").error() != nullptr);
  CHECK(sim.answer(kUser.peer, "r").error()->message == "no such device");
}

TEST_CASE("unload, sleep and swap are about all replicas") {
  BrokerSim sim({{"m", {}}, {"n", {}}}, on_two());
  load(sim);
  sim.unload("keep", "m", true);
  REQUIRE(sim.run_until([&] { return sim.answer(BrokerSim::admin().peer, "keep").ends == 1; }));
  CHECK(sim.answer(BrokerSim::admin().peer, "keep").as<ipc::UnloadReply>()->asleep);
  CHECK(sim.worker("m@left")->is_asleep());
  CHECK(sim.worker("m@right")->is_asleep());
  sim.generate(kUser, "r", "m", 5);
  REQUIRE(sim.run_until([&] { return ended(sim, "r"); }));
  CHECK(sim.answer(kUser.peer, "r").ids == whole(7, 5));
  CHECK(sim.starts == 2);
  sim.unload("gone", "m");
  REQUIRE(sim.run_until([&] { return sim.answer(BrokerSim::admin().peer, "gone").ends == 1; }));
  CHECK(sim.workers.empty());
  sim.models.configure(sim.models.dirs(), {}, {{"default", "n"}});
  sim.swap("s", "default", "m");
  REQUIRE(sim.run_until([&] { return sim.answer(BrokerSim::admin().peer, "s").ends == 1; }));
  CHECK(sim.answer(BrokerSim::admin().peer, "s").as<ipc::SwapReply>() != nullptr);
  CHECK(sim.models.target_of("default") == "m");
  CHECK(sim.worker("m@left")->is_ready());
  CHECK(sim.worker("m@right")->is_ready());
}

TEST_CASE("a device with a budget of its own makes room among its own models alone") {
  Config config = on_two();
  config.residency.memory_bytes = 100;
  config.devices["right"].memory_bytes = 30;
  config.models["a"].devices = {"left"};
  config.models["b"].devices = {"right"};
  config.models["c"].devices = {"right"};
  BrokerSim sim({{"a", {}}, {"b", {}}, {"c", {}}}, config);  // 20 each
  for (const char* const model : {"a", "b", "c"}) {
    sim.generate(kUser, model, model, 3);
    REQUIRE(sim.run_until([&] { return ended(sim, model); }));
  }
  CHECK(sim.worker("a") != nullptr);
  CHECK(sim.worker("b") == nullptr);  // unloaded for the next one
  CHECK(sim.worker("c") != nullptr);
  CHECK(sim.residency.budget_bytes(*sim.residency.find("c")) == 30);
  CHECK(sim.residency.budget_bytes(*sim.residency.find("a")) == 0);
}

TEST_CASE("a model that does not fit into a device's budget is refused there with the numbers") {
  Config config = on_two();
  config.devices["right"].memory_bytes = 15;
  BrokerSim sim({{"m", {}}}, config);
  sim.generate(kUser, "r", "m", 5);
  REQUIRE(sim.run_until([&] { return ended(sim, "r"); }));
  CHECK(sim.answer(kUser.peer, "r").ids == whole(7, 5));
  REQUIRE(sim.run_until([&] { return sim.residency.find("m@right")->problem.has_value(); }));
  const std::string& message = sim.residency.find("m@right")->problem->message;
  CHECK(message.find("takes 20 bytes") != message.npos);
  CHECK(message.find("devices.right.memory_bytes is 15") != message.npos);
}

Result<void> checked(const std::string& toml) {
  Config config;
  HEARTH_TRY(apply_toml(toml, "test", &config));
  return check_config(config);
}

std::string problem_of(const std::string& toml) {
  const Result<void> checked_config = checked(toml);
  return checked_config ? "" : checked_config.error().message;
}

TEST_CASE("devices are read, listed and checked") {
  Config config;
  const std::string toml = R"(
[devices.left]
kind = "cpu"
cores = [0]
memory_bytes = 1000000
[devices.right]
threads = 2
[models.m]
devices = ["left", "right", "cuda:1"]
)";
  REQUIRE(apply_toml(toml, "test", &config).ok());
  CHECK(check_config(config).ok());
  CHECK(config.devices_of("m") == std::vector<std::string>{"left", "right", "cuda:1"});
  CHECK(config.devices_of("other").empty());
  CHECK(config.device("left").cores == std::vector<int32_t>{0});
  CHECK(config.device("right").threads == 2);
  CHECK(config.device("cuda:1").kind == "cuda:1");
  std::string listed;
  for (const Setting& setting : list_settings(config)) {
    listed += setting.key + "=" + setting.value + "\n";
  }
  CHECK(listed.find("devices.left.cores=[0]\n") != listed.npos);
  CHECK(listed.find("devices.left.memory_bytes=1000000\n") != listed.npos);
  CHECK(listed.find("models.m.devices=[\"left\", \"right\", \"cuda:1\"]\n") != listed.npos);

  CHECK(
      problem_of("[models.m]\ndevices = [\"left\"]").find("met \"left\", want some of auto, cpu") !=
      std::string::npos);
  CHECK(problem_of("[models.m]\ndevices = [\"cpu\", \"cpu\"]").find("twice") != std::string::npos);
  CHECK(
      problem_of("[models.m]\ndevice = \"cpu\"\ndevices = [\"cpu\"]").find("no models.m.device") !=
      std::string::npos);
  CHECK(problem_of("[devices.left]\ncores = [1023]").find("met 1023, this process may use") !=
        std::string::npos);
  CHECK(problem_of("[devices.cpu]\nthreads = 1").find("not a kind of device") != std::string::npos);
  CHECK(problem_of("[devices.\"a@b\"]\nthreads = 1").find("without @") != std::string::npos);
  CHECK(problem_of("[devices.g]\nkind = \"cuda:0\"\nthreads = 1").find("only a cpu") !=
        std::string::npos);
  CHECK_FALSE(checked("[devices.left]\ncores = [-1]").ok());
  CHECK_FALSE(checked("[devices.left]\ncores = 0").ok());
  CHECK_FALSE(checked("[devices.left]\nkind = \"tpu\"").ok());
  CHECK_FALSE(checked("[devices.left]\ncolour = \"red\"").ok());
}

}  // namespace
}  // namespace hearth::broker
