#include "daemon/broker/requests/model_verbs.h"

#include <doctest/doctest.h>

#include "tests/unit/daemon/broker_sim.h"

namespace hearth::broker {
namespace {

Config roles(int64_t memory_bytes) {
  Config config;
  config.roles = {{"default", "a"}, {"fast", "b"}};
  config.residency.memory_bytes = memory_bytes;
  config.residency.keep_alive_ms = 0;
  return config;
}

const Caller kUser = BrokerSim::user(1000);

const ipc::DoneEvent* done(BrokerSim& sim, const std::string& id) {
  return sim.answer(BrokerSim::user(1000).peer, id).as<ipc::DoneEvent>();
}

TEST_CASE(
    "with room a swap loads the new model while the old one runs; later requests go to the new "
    "one") {
  BrokerSim sim({{"a", {}}, {"b", {}}, {"c", {.load_steps = 10}}}, roles(100));
  sim.generate(kUser, "before", "default", 300);
  REQUIRE(
      sim.run_until([&] { return !sim.answer(BrokerSim::user(1000).peer, "before").ids.empty(); }));
  sim.swap("s", "default", "c");
  sim.step();
  sim.generate(kUser, "meanwhile", "default", 10);  // the old one serves until the new one can
  REQUIRE(sim.run_until([&] { return sim.answer(BrokerSim::admin().peer, "s").ends == 1; }));
  const auto* reply = sim.answer(BrokerSim::admin().peer, "s").as<ipc::SwapReply>();
  REQUIRE(reply != nullptr);
  CHECK(reply->model == "c");
  CHECK(reply->previous == "a");
  CHECK(reply->load_ms > 0);
  sim.generate(kUser, "after", "default", 10);
  sim.generate(kUser, "by name", "a", 10);
  REQUIRE(sim.run_until([&] { return sim.dispatcher.requests().size() == 0; }));
  CHECK(done(sim, "before")->model == "a");
  CHECK(done(sim, "meanwhile")->model == "a");
  CHECK(done(sim, "after")->model == "c");
  CHECK(done(sim, "by name")->model == "a");
  CHECK(sim.models.roles_of("c") == std::vector<std::string>{"default"});
  // Progress came while it loaded.
  size_t reading = 0;
  for (const ipc::Event& event : sim.answer(BrokerSim::admin().peer, "s").events) {
    const auto* loading = std::get_if<ipc::LoadingEvent>(&event);
    REQUIRE(loading != nullptr);
    reading += loading->stage == "reading" ? 1 : 0;
  }
  CHECK(reading > 3);
}

TEST_CASE("without room the old model drains first, and waiting requests go to the new one") {
  BrokerSim sim({{"a", {}}, {"b", {}}, {"c", {}}}, roles(30));
  sim.generate(kUser, "before", "default", 60);
  REQUIRE(
      sim.run_until([&] { return !sim.answer(BrokerSim::user(1000).peer, "before").ids.empty(); }));
  sim.swap("s", "default", "c");
  // An administrator's load does not wait for a turn.
  REQUIRE(sim.run_until([&] { return sim.worker("a")->state() == Worker::State::kDraining; }, 5));
  sim.generate(kUser, "meanwhile", "default", 10);
  CHECK(sim.answer(BrokerSim::user(1000).peer, "meanwhile").ends == 0);
  REQUIRE(sim.run_until([&] { return sim.dispatcher.requests().size() == 0; }));
  CHECK(done(sim, "before")->model == "a");
  CHECK(sim.answer(BrokerSim::user(1000).peer, "before").ids.size() == 60);
  CHECK(done(sim, "meanwhile")->model == "c");
  CHECK(sim.starts == 3);  // the new one once more for its plan; the old one was not loaded again
  CHECK(sim.worker("a") == nullptr);
}

TEST_CASE("a failed load leaves the old model serving, and the error gives the reason") {
  const Error corrupt{ErrorCode::kCorrupt, "blk.0: cut", ""};
  for (const int64_t memory : {100, 30}) {
    BrokerSim sim({{"a", {}}, {"b", {}}, {"bad", {.fails = corrupt}}}, roles(memory));
    sim.generate(kUser, "before", "default", 60);
    REQUIRE(sim.run_until(
        [&] { return !sim.answer(BrokerSim::user(1000).peer, "before").ids.empty(); }));
    sim.swap("s", "default", "bad");
    sim.step();
    sim.generate(kUser, "meanwhile", "default", 10);
    REQUIRE(sim.run_until([&] {
      return sim.dispatcher.requests().size() == 0 &&
             sim.answer(BrokerSim::admin().peer, "s").ends == 1;
    }));
    const Error* error = sim.answer(BrokerSim::admin().peer, "s").error();
    REQUIRE(error != nullptr);
    CHECK(error->code == ErrorCode::kCorrupt);
    CHECK(done(sim, "before")->model == "a");
    CHECK(done(sim, "meanwhile")->model == "a");
    CHECK(sim.models.roles_of("a") == std::vector<std::string>{"default"});
  }
}

TEST_CASE("re-pointing a role to a resident model takes effect at once") {
  BrokerSim sim({{"a", {}}, {"b", {}}}, roles(100));
  sim.load("l", "b");
  REQUIRE(sim.run_until([&] { return sim.answer(BrokerSim::admin().peer, "l").ends == 1; }));
  sim.swap("s", "default", "b");
  REQUIRE(sim.answer(BrokerSim::admin().peer, "s").as<ipc::SwapReply>() != nullptr);  // at once
  CHECK(sim.answer(BrokerSim::admin().peer, "s").as<ipc::SwapReply>()->load_ms == 0);
  CHECK(sim.models.resolve("default")->name == "b");
  CHECK(sim.models.resolve("a")->name == "a");
}

TEST_CASE("only administrators load and swap models; roles and models must exist") {
  BrokerSim sim({{"a", {}}, {"b", {}}}, roles(100));
  sim.verbs.load(kUser, "1", {.model = "a"});
  sim.verbs.unload(kUser, "2", {.model = "a"});
  sim.verbs.swap(kUser, "3", {.role = "default", .model = "b"});
  for (const char* id : {"1", "2", "3"}) {
    REQUIRE(sim.answer(BrokerSim::user(1000).peer, id).error() != nullptr);
    CHECK(sim.answer(BrokerSim::user(1000).peer, id).error()->code == ErrorCode::kForbidden);
  }
  sim.swap("4", "slow", "b");
  REQUIRE(sim.answer(BrokerSim::admin().peer, "4").error() != nullptr);
  CHECK(sim.answer(BrokerSim::admin().peer, "4").error()->message ==
        "no role slow; there are: default, fast");
  sim.swap("5", "default", "missing");
  CHECK(sim.answer(BrokerSim::admin().peer, "5").error()->code == ErrorCode::kNotFound);
  CHECK(sim.starts == 0);
}

TEST_CASE(
    "unload waits for requests; a load meanwhile wins; unloading an unloaded model is an error") {
  BrokerSim sim({{"a", {}}, {"b", {}}}, roles(100));
  sim.generate(kUser, "r", "a", 60);
  REQUIRE(sim.run_until([&] { return !sim.answer(BrokerSim::user(1000).peer, "r").ids.empty(); }));
  sim.unload("u", "default");
  CHECK(sim.answer(BrokerSim::admin().peer, "u").ends == 0);
  REQUIRE(sim.run_until([&] { return sim.answer(BrokerSim::admin().peer, "u").ends == 1; }));
  CHECK(sim.answer(BrokerSim::admin().peer, "u").as<ipc::UnloadReply>()->was_resident);
  CHECK(sim.answer(BrokerSim::user(1000).peer, "r").ids.size() == 60);
  CHECK(sim.workers.empty());
  sim.unload("none", "a");
  REQUIRE(sim.answer(BrokerSim::admin().peer, "none").as<ipc::UnloadReply>() != nullptr);
  CHECK_FALSE(sim.answer(BrokerSim::admin().peer, "none").as<ipc::UnloadReply>()->was_resident);

  sim.load("l", "a");
  sim.step();
  sim.unload("u2", "a");  // the load in progress is reported
  REQUIRE(sim.run_until([&] { return sim.answer(BrokerSim::admin().peer, "u2").ends == 1; }));
  REQUIRE(sim.answer(BrokerSim::admin().peer, "l").error() != nullptr);
  CHECK(sim.answer(BrokerSim::admin().peer, "l").error()->code == ErrorCode::kCancelled);
  CHECK(sim.run_until([&] { return sim.workers.empty(); }));
}

TEST_CASE("a worker that dies while it loads for a swap is tried again, then given up") {
  BrokerSim sim({{"a", {}}, {"b", {.load_steps = 1000}}}, roles(100));
  sim.swap("s", "default", "b");
  int deaths = 0;
  REQUIRE(sim.run_until([&] {
    if (FakeWorker* worker = sim.worker("b")) {
      if (worker->state() == Worker::State::kStarting && worker->plan() != nullptr) {
        worker->die();
        ++deaths;
      }
    }
    return sim.answer(BrokerSim::admin().peer, "s").ends == 1;
  }));
  CHECK(deaths == 3);
  REQUIRE(sim.answer(BrokerSim::admin().peer, "s").error() != nullptr);
  CHECK(sim.answer(BrokerSim::admin().peer, "s").error()->code == ErrorCode::kUnavailable);
  CHECK(sim.models.resolve("default")->name == "a");
}

}  // namespace
}  // namespace hearth::broker
