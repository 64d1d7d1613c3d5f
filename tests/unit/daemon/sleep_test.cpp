// Workers that are kept asleep: they hold little, wake for requests and loads, and lose nothing.

#include <doctest/doctest.h>

#include "tests/unit/daemon/broker_sim.h"

namespace hearth::broker {
namespace {

const Caller kUser = BrokerSim::user(1000);

/// Each model has weights of 10 bytes and pools of 3, of which 2 are always there.
BrokerSim sim_of(const std::vector<std::string>& models, int64_t budget) {
  Config config;
  config.residency.memory_bytes = budget;
  config.residency.keep_alive_ms = 0;
  config.residency.turn_ms = 1000;
  std::map<std::string, ModelTraits> traits;
  for (const std::string& model : models) {
    traits[model] = {.weight_bytes = 10, .kv_bytes = 3, .kv_floor_bytes = 2};
  }
  return {traits, config};
}

std::vector<int32_t> whole(const std::string& model, uint32_t count) {
  std::vector<int32_t> ids;
  for (uint32_t i = 0; i < count; ++i) ids.push_back(BrokerSim::token(model, 7, i));
  return ids;
}

void answer_one(BrokerSim& sim, const std::string& id, const std::string& model) {
  sim.generate(kUser, id, model, 5);
  REQUIRE(sim.run_until([&] { return sim.answer(kUser.peer, id).ends == 1; }));
  CHECK(sim.answer(kUser.peer, id).ids == whole(model, 5));
}

const ipc::UnloadReply* keep(BrokerSim& sim, const std::string& id, const std::string& model) {
  sim.unload(id, model, true);
  REQUIRE(sim.run_until([&] { return sim.answer(BrokerSim::admin().peer, id).ends == 1; }));
  return sim.answer(BrokerSim::admin().peer, id).as<ipc::UnloadReply>();
}

uint64_t counted(const BrokerSim& sim, const std::string& model) {
  return sim.residency.memory_bytes(*sim.residency.find(model));
}

TEST_CASE("a model that sleeps keeps its worker and counts only what it holds") {
  BrokerSim sim = sim_of({"a"}, 100);
  answer_one(sim, "first", "a");
  const pid_t pid = sim.worker("a")->pid();
  sim.worker("a")->fill_pools(3);
  CHECK(counted(sim, "a") == 13);
  const ipc::UnloadReply* reply = keep(sim, "k", "a");
  REQUIRE(reply != nullptr);
  CHECK(reply->was_resident);
  CHECK(reply->asleep);
  CHECK(sim.worker("a")->is_asleep());
  CHECK(counted(sim, "a") == 3);
  reply = keep(sim, "again", "a");
  CHECK_FALSE(reply->was_resident);
  CHECK(reply->asleep);
  for (int i = 0; i < 100; ++i) sim.step();
  CHECK(sim.worker("a")->wakes() == 0);

  answer_one(sim, "second", "a");
  CHECK(sim.worker("a")->pid() == pid);
  CHECK(sim.worker("a")->wakes() == 1);
  CHECK(counted(sim, "a") == 13);

  keep(sim, "k2", "a");
  sim.load("l", "a");
  CHECK(sim.answer(BrokerSim::admin().peer, "l").as<ipc::LoadReply>() != nullptr);  // at once
  CHECK(sim.worker("a")->is_ready());
  CHECK(sim.worker("a")->wakes() == 2);
  CHECK(sim.starts == 1);
}

TEST_CASE("a model sleeps after its requests; those that arrive meanwhile wake it") {
  BrokerSim sim = sim_of({"a"}, 100);
  sim.generate(kUser, "long", "a", 60);
  REQUIRE(sim.run_until([&] { return !sim.answer(kUser.peer, "long").ids.empty(); }));
  sim.unload("k", "a", true);
  sim.generate(kUser, "late", "a", 5);
  REQUIRE(sim.run_until([&] { return sim.answer(kUser.peer, "late").ends == 1; }));
  CHECK(sim.answer(BrokerSim::admin().peer, "k").as<ipc::UnloadReply>()->asleep);
  CHECK(sim.answer(kUser.peer, "long").ids == whole("a", 60));
  CHECK(sim.answer(kUser.peer, "late").ids == whole("a", 5));
  CHECK(sim.worker("a")->wakes() == 1);
  CHECK(sim.starts == 1);
}

TEST_CASE("a model that is unloaded while it falls asleep, or sleeps, ends") {
  BrokerSim sim = sim_of({"a"}, 100);
  sim.generate(kUser, "long", "a", 60);
  REQUIRE(sim.run_until([&] { return !sim.answer(kUser.peer, "long").ids.empty(); }));
  sim.unload("k", "a", true);
  sim.unload("u", "a");
  REQUIRE(sim.run_until([&] { return sim.workers.empty(); }));
  CHECK(sim.answer(kUser.peer, "long").ids == whole("a", 60));
  CHECK_FALSE(sim.answer(BrokerSim::admin().peer, "k").as<ipc::UnloadReply>()->asleep);
  CHECK(sim.answer(BrokerSim::admin().peer, "u").as<ipc::UnloadReply>()->was_resident);

  answer_one(sim, "r", "a");
  keep(sim, "k2", "a");
  sim.unload("u2", "a");
  REQUIRE(sim.run_until([&] { return sim.workers.empty(); }));
  CHECK(sim.answer(BrokerSim::admin().peer, "u2").as<ipc::UnloadReply>()->was_resident);
}

TEST_CASE("models that sleep make room for others, and wait for it to wake") {
  BrokerSim sim = sim_of({"a", "b"}, 16);  // each takes 12
  answer_one(sim, "a", "a");
  keep(sim, "k", "a");
  answer_one(sim, "b", "b");
  CHECK(sim.worker("a")->is_asleep());
  CHECK(sim.worker("b")->is_ready());
  // b leaves for it: it is idle.
  answer_one(sim, "a again", "a");
  CHECK(sim.worker("b") == nullptr);
  CHECK(sim.worker("a")->wakes() == 1);
  CHECK(sim.starts == 2);
}

TEST_CASE("a model that sleeps ends if it is in the way, and its requests start another worker") {
  BrokerSim sim = sim_of({"a", "b"}, 13);  // not even the floor of the other one's pools fits
  answer_one(sim, "a", "a");
  keep(sim, "k", "a");
  answer_one(sim, "b", "b");
  CHECK(sim.worker("a") == nullptr);
  answer_one(sim, "a again", "a");
  CHECK(sim.worker("a")->wakes() == 0);
}

TEST_CASE("the number of workers is bounded; the sleeping one that was used first ends") {
  BrokerSim sim = sim_of({"a", "b", "c"}, 100);
  sim.config.limits.max_resident = 2;
  answer_one(sim, "b", "b");
  answer_one(sim, "a", "a");
  keep(sim, "k", "a");
  answer_one(sim, "c", "c");
  CHECK(sim.worker("a") == nullptr);
  CHECK(sim.worker("b") != nullptr);
}

TEST_CASE("a worker that dies asleep loses no request") {
  BrokerSim sim = sim_of({"a"}, 100);
  answer_one(sim, "r", "a");
  keep(sim, "k", "a");
  sim.worker("a")->die();
  for (int i = 0; i < 5; ++i) sim.step();
  CHECK(sim.worker("a") == nullptr);
  CHECK(sim.starts == 1);
  answer_one(sim, "next", "a");
  CHECK(sim.starts == 2);
  CHECK(sim.answer(kUser.peer, "next").as<ipc::DoneEvent>()->resumed == 0);
}

TEST_CASE("a role is exchanged while the other model sleeps") {
  BrokerSim sim = sim_of({"a", "b"}, 16);
  sim.models.configure(sim.models.dirs(), {}, {{"default", "a"}});
  answer_one(sim, "first", "a");
  keep(sim, "k", "a");
  int round = 0;
  for (const char* const to : {"b", "a", "b"}) {
    CAPTURE(to);
    const std::string id = std::to_string(++round);
    sim.swap("swap " + id, "default", to);
    REQUIRE(sim.run_until([&] { return sim.models.target_of("default") == to; }));
    sim.generate(kUser, id, "default", 5);
    REQUIRE(sim.run_until([&] { return sim.answer(kUser.peer, id).ends == 1; }));
    CHECK(sim.answer(kUser.peer, id).ids == whole(to, 5));
    const Result<bool> slept = sim.residency.sleep(to);
    REQUIRE(slept.ok());
    REQUIRE(sim.run_until([&] { return sim.worker(to)->is_asleep(); }));
  }
  CHECK(sim.worker("b")->wakes() == 1);
}

TEST_CASE("models that cannot sleep, or are not ready, are refused") {
  BrokerSim sim({{"gpu", {.can_sleep = false}}, {"slow", {.load_steps = 1000}}}, {});
  answer_one(sim, "r", "gpu");
  sim.unload("k", "gpu", true);
  const Error* error = sim.answer(BrokerSim::admin().peer, "k").error();
  REQUIRE(error != nullptr);
  CHECK(error->code == ErrorCode::kUnsupported);
  CHECK(error->field == "keep");
  CHECK(sim.worker("gpu")->is_ready());
  sim.generate(kUser, "s", "slow", 5);
  sim.step();
  sim.unload("k2", "slow", true);
  error = sim.answer(BrokerSim::admin().peer, "k2").error();
  REQUIRE(error != nullptr);
  CHECK(error->code == ErrorCode::kBusy);
  sim.unload("k3", "nowhere", true);
  CHECK(sim.answer(BrokerSim::admin().peer, "k3").error()->code == ErrorCode::kNotFound);
}

}  // namespace
}  // namespace hearth::broker
