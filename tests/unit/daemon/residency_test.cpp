#include "daemon/broker/residency/residency.h"

#include <doctest/doctest.h>

#include "tests/unit/daemon/broker_sim.h"

namespace hearth::broker {
namespace {

Config with_budget(int64_t bytes) {
  Config config;
  config.residency.memory_bytes = bytes;
  config.residency.keep_alive_ms = 0;
  config.residency.turn_ms = 1000;
  return config;
}

const Caller kUser = BrokerSim::user(1000);

std::vector<int32_t> whole(const std::string& model, uint64_t seed, uint32_t count) {
  std::vector<int32_t> ids;
  for (uint32_t i = 0; i < count; ++i) ids.push_back(BrokerSim::token(model, seed, i));
  return ids;
}

TEST_CASE("models that fit stay resident together; the least recently used idle one is evicted") {
  BrokerSim sim({{"a", {}}, {"b", {}}, {"c", {}}}, with_budget(40));  // 20 each
  for (const char* model : {"a", "b"}) {
    sim.generate(kUser, model, model, 3);
    REQUIRE(sim.run_until([&] { return sim.answer(BrokerSim::user(1000).peer, model).ends == 1; }));
  }
  CHECK(sim.workers.size() == 2);
  sim.generate(kUser, "a again", "a", 3);
  REQUIRE(
      sim.run_until([&] { return sim.answer(BrokerSim::user(1000).peer, "a again").ends == 1; }));
  sim.generate(kUser, "c", "c", 3);
  REQUIRE(sim.run_until([&] { return sim.answer(BrokerSim::user(1000).peer, "c").ends == 1; }));
  CHECK(sim.answer(BrokerSim::user(1000).peer, "c").ids == whole("c", 7, 3));
  CHECK(sim.worker("b") == nullptr);
  CHECK(sim.worker("a") != nullptr);
  CHECK(sim.residency.find("b")->parked);
}

TEST_CASE(
    "a model in use is evicted after its turn, finishes its requests, and returns for waiting "
    "ones") {
  BrokerSim sim({{"a", {}}, {"b", {}}}, with_budget(30));
  sim.generate(kUser, "long", "a", 400);
  REQUIRE(
      sim.run_until([&] { return !sim.answer(BrokerSim::user(1000).peer, "long").ids.empty(); }));
  sim.generate(kUser, "b", "b", 5);
  for (int i = 0; i < 20; ++i) sim.step();
  const auto* queued =
      std::get_if<ipc::QueuedEvent>(&sim.answer(BrokerSim::user(1000).peer, "b").events.back());
  REQUIRE(queued != nullptr);
  CHECK(queued->reason == "busy");
  CHECK(sim.worker("a")->state() == Worker::State::kReady);  // its turn is not over
  REQUIRE(sim.run_until([&] { return sim.worker("a")->state() == Worker::State::kDraining; }));
  sim.generate(kUser, "late", "a", 5);
  REQUIRE(sim.run_until([&] { return sim.answer(BrokerSim::user(1000).peer, "late").ends == 1; }));
  CHECK(sim.answer(BrokerSim::user(1000).peer, "long").ids == whole("a", 7, 400));
  CHECK(sim.answer(BrokerSim::user(1000).peer, "b").ids == whole("b", 7, 5));
  CHECK(sim.answer(BrokerSim::user(1000).peer, "late").ids == whole("a", 7, 5));
}

TEST_CASE("two models that do not fit together take turns under any number of requests") {
  BrokerSim sim({{"a", {}}, {"b", {}}}, with_budget(30));
  int asked = 0;
  std::map<std::string, int> done;
  for (int step = 0; step < 2000; ++step) {
    for (const char* model : {"a", "b"}) {
      const auto of_model = [&](const LiveRequest& request) { return request.model == model; };
      if (sim.dispatcher.requests().numbers(of_model).size() < 3) {
        sim.generate(kUser, std::to_string(++asked), model, 20);
      }
    }
    sim.step();
  }
  for (const auto& [peer, answer] : sim.answers) {
    if (const auto* end = answer.as<ipc::DoneEvent>()) ++done[end->model];
    CHECK(answer.error() == nullptr);
  }
  CHECK(done["a"] > 50);
  CHECK(done["b"] > 50);
  CHECK(sim.starts > 6);
  CHECK(sim.starts < 60);  // turns, no thrashing
}

TEST_CASE("a model is in use until the last lease on it ends") {
  BrokerSim sim({{"a", {}}, {"b", {}}}, with_budget(0));
  CHECK_FALSE(sim.residency.in_use("a"));
  ModelUse first = sim.residency.use("a");
  ModelUse second = sim.residency.use("a");
  CHECK(sim.residency.in_use("a"));
  CHECK_FALSE(sim.residency.in_use("b"));
  first.reset();
  CHECK(sim.residency.in_use("a"));
  second = sim.residency.use("b");  // moved to another model
  CHECK_FALSE(sim.residency.in_use("a"));
  CHECK(sim.residency.in_use("b"));
}

TEST_CASE("requests and pending loads use their model, unloads do not") {
  BrokerSim sim({{"a", {}}, {"b", {}}}, with_budget(0));
  sim.load("l", "a");
  CHECK(sim.residency.in_use("a"));
  REQUIRE(sim.run_until([&] { return sim.answer(BrokerSim::admin().peer, "l").ends == 1; }));
  CHECK_FALSE(sim.residency.in_use("a"));
  sim.generate(kUser, "r", "a", 3);
  CHECK(sim.residency.in_use("a"));
  REQUIRE(sim.run_until([&] { return sim.answer(kUser.peer, "r").ends == 1; }));
  CHECK_FALSE(sim.residency.in_use("a"));
  sim.unload("u", "a");
  CHECK_FALSE(sim.residency.in_use("a"));
}

TEST_CASE("on a device with its own memory that memory counts, and not the host's") {
  BrokerSim sim({{"a", {}}, {"b", {}}, {"c", {.weight_bytes = 5, .kv_bytes = 5}}}, with_budget(0));
  sim.host_free_bytes = 1;
  sim.device_bytes = 30;
  sim.generate(kUser, "a", "a", 3);
  REQUIRE(sim.run_until([&] { return sim.answer(BrokerSim::user(1000).peer, "a").ends == 1; }));
  // It fits in addition to the first one, however little memory the host has left.
  sim.generate(kUser, "c", "c", 3);
  REQUIRE(sim.run_until([&] { return sim.answer(BrokerSim::user(1000).peer, "c").ends == 1; }));
  CHECK(sim.workers.size() == 2);
  // This one does not fit: the least recently used one is evicted.
  uint64_t most = 0;
  sim.generate(kUser, "b", "b", 3);
  REQUIRE(sim.run_until([&] {
    most = std::max(most, sim.bytes_held());
    return sim.answer(BrokerSim::user(1000).peer, "b").ends == 1;
  }));
  CHECK(sim.answer(BrokerSim::user(1000).peer, "b").ids == whole("b", 7, 3));
  CHECK(most <= 30);
  CHECK(sim.residency.worker_of("a") == nullptr);
  CHECK(sim.residency.worker_of("c") != nullptr);
}

ModelTraits elastic(uint64_t kv_bytes, uint64_t kv_floor_bytes) {
  return {.weight_bytes = 10, .kv_bytes = kv_bytes, .kv_floor_bytes = kv_floor_bytes};
}

TEST_CASE("what counts is the memory that backs KV pools, and at least their floor") {
  // Two of 60 reserved bytes each in a budget of 60.
  BrokerSim sim({{"a", elastic(50, 2)}, {"b", elastic(50, 2)}}, with_budget(60));
  for (const char* model : {"a", "b"}) {
    sim.generate(kUser, model, model, 3);
    REQUIRE(sim.run_until([&] { return sim.answer(kUser.peer, model).ends == 1; }));
  }
  CHECK(sim.workers.size() == 2);
  CHECK(sim.residency.memory_bytes(*sim.residency.find("a")) == 12);
  sim.step();
  CHECK(sim.worker("a")->kv_bound_bytes() + sim.worker("b")->kv_bound_bytes() <= 40);
  CHECK(sim.worker("a")->kv_bound_bytes() > 2);
  // What one fills, the other cannot.
  sim.worker("a")->fill_pools(sim.worker("a")->kv_bound_bytes());
  for (int i = 0; i < 3; ++i) sim.step();
  CHECK(sim.bytes_held() <= 60);
  CHECK(sim.residency.memory_bytes(*sim.residency.find("a")) ==
        10 + sim.worker("a")->kv_backed_bytes());
  CHECK(sim.worker("a")->kv_backed_bytes() + sim.worker("b")->kv_bound_bytes() <= 40);
}

TEST_CASE("a third model makes an idle pool shrink before anything is unloaded") {
  BrokerSim sim({{"a", elastic(50, 2)}, {"b", elastic(50, 2)}, {"c", elastic(50, 2)}},
                with_budget(60));
  for (const char* model : {"a", "b"}) {
    sim.generate(kUser, model, model, 3);
    REQUIRE(sim.run_until([&] { return sim.answer(kUser.peer, model).ends == 1; }));
    sim.worker(model)->fill_pools(18);
    for (int i = 0; i < 3; ++i) sim.step();
  }
  CHECK(sim.worker("a")->kv_backed_bytes() == 18);
  sim.generate(kUser, "c", "c", 3);
  uint64_t most = 0;
  REQUIRE(sim.run_until([&] {
    most = std::max(most, sim.bytes_held());
    return sim.answer(kUser.peer, "c").ends == 1;
  }));
  CHECK(most <= 60);
  CHECK(sim.workers.size() == 3);
  CHECK(sim.starts == 4);  // c's size is known from its first start
  // The pool unused longest gave back what was needed, the other one nothing.
  CHECK(sim.worker("a")->kv_backed_bytes() < 18);
  CHECK(sim.worker("b")->kv_backed_bytes() == 18);
}

TEST_CASE("an idle pool has seconds to shrink, then its model is unloaded") {
  for (const bool in_time : {true, false}) {
    CAPTURE(in_time);
    BrokerSim sim({{"a", elastic(50, 2)}, {"b", elastic(50, 2)}}, with_budget(60));
    sim.generate(kUser, "a", "a", 3);
    REQUIRE(sim.run_until([&] { return sim.answer(kUser.peer, "a").ends == 1; }));
    sim.worker("a")->fill_pools(45);
    for (int i = 0; i < 3; ++i) sim.step();
    REQUIRE(sim.worker("a")->kv_backed_bytes() == 45);
    sim.worker("a")->fall_behind();
    sim.load("b", "b");
    for (int i = 0; i < 30; ++i) sim.step(100);
    REQUIRE(sim.worker("a") != nullptr);
    CHECK(sim.answer(BrokerSim::admin().peer, "b").ends == 0);
    if (in_time) sim.worker("a")->catch_up();
    for (int i = 0; i < 30; ++i) sim.step(100);
    CHECK((sim.worker("a") != nullptr) == in_time);
    CHECK(sim.answer(BrokerSim::admin().peer, "b").as<ipc::LoadReply>() != nullptr);
    CHECK(sim.bytes_held() <= 60);
  }
}

TEST_CASE("where idle pools cannot give enough, the least recently used model is unloaded") {
  BrokerSim sim({{"a", elastic(50, 2)}, {"b", elastic(50, 2)}, {"c", {.weight_bytes = 40}}},
                with_budget(60));
  for (const char* model : {"a", "b"}) {
    sim.generate(kUser, model, model, 3);
    REQUIRE(sim.run_until([&] { return sim.answer(kUser.peer, model).ends == 1; }));
  }
  sim.generate(kUser, "c", "c", 3);
  REQUIRE(sim.run_until([&] { return sim.answer(kUser.peer, "c").ends == 1; }));
  CHECK(sim.worker("c") != nullptr);
  CHECK(sim.bytes_held() <= 60);
}

TEST_CASE("requests that stall for memory get it from idle pools, then from idle models") {
  BrokerSim sim({{"a", elastic(50, 2)}, {"b", elastic(50, 2)}}, with_budget(60));
  for (const char* model : {"a", "b"}) {
    sim.generate(kUser, model, model, 3);
    REQUIRE(sim.run_until([&] { return sim.answer(kUser.peer, model).ends == 1; }));
  }
  sim.worker("a")->fill_pools(15);
  sim.generate(kUser, "long", "b", 500);
  REQUIRE(sim.run_until([&] { return !sim.answer(kUser.peer, "long").ids.empty(); }));
  sim.worker("b")->fill_pools(35);
  REQUIRE(sim.run_until([&] { return sim.worker("b")->kv_backed_bytes() == 35; }));
  CHECK(sim.worker("a") != nullptr);
  CHECK(sim.worker("a")->kv_backed_bytes() <= 5);
  sim.worker("b")->fill_pools(50);
  REQUIRE(sim.run_until([&] { return sim.worker("b")->kv_backed_bytes() == 50; }));
  CHECK(sim.worker("a") == nullptr);
  REQUIRE(sim.run_until([&] { return sim.answer(kUser.peer, "long").ends == 1; }));
  CHECK(sim.answer(kUser.peer, "long").ids == whole("b", 7, 500));
}

TEST_CASE("what workers on a GPU may still take of host memory is known") {
  BrokerSim sim({{"a", {.host_bytes = 40, .host_bytes_taken = 15}}, {"b", {.host_bytes = 7}}},
                with_budget(0));
  CHECK(sim.residency.host_bytes_to_come() == 0);
  sim.generate(kUser, "a", "a", 3);
  REQUIRE(sim.run_until([&] { return sim.answer(BrokerSim::user(1000).peer, "a").ends == 1; }));
  CHECK(sim.residency.host_bytes_to_come() == 25);
  sim.generate(kUser, "b", "b", 3);
  REQUIRE(sim.run_until([&] { return sim.answer(BrokerSim::user(1000).peer, "b").ends == 1; }));
  CHECK(sim.residency.host_bytes_to_come() == 32);
  sim.unload("u", "a");
  REQUIRE(sim.run_until([&] { return sim.residency.worker_of("a") == nullptr; }));
  CHECK(sim.residency.host_bytes_to_come() == 7);
}

TEST_CASE("a worker's plan counts, not the size of its file") {
  BrokerSim sim({{"a", {}}, {"b", {.weight_bytes = 25, .kv_bytes = 10}}}, with_budget(40));
  sim.load("a", "a");
  sim.load("b", "b");
  uint64_t most = 0;
  REQUIRE(sim.run_until([&] {
    most = std::max(most, sim.bytes_held());
    return sim.answer(BrokerSim::admin().peer, "a").ends +
               sim.answer(BrokerSim::admin().peer, "b").ends ==
           2;
  }));
  CHECK(sim.answer(BrokerSim::admin().peer, "a").as<ipc::LoadReply>() != nullptr);
  CHECK(sim.answer(BrokerSim::admin().peer, "b").as<ipc::LoadReply>() != nullptr);
  CHECK(most <= 40);
  CHECK(sim.residency.memory_bytes(*sim.residency.find("b")) == 35);
}

TEST_CASE("a model that never fits is refused with the sizes, and delays others only briefly") {
  BrokerSim sim({{"a", {}}, {"huge", {.weight_bytes = 90, .kv_bytes = 20}}}, with_budget(100));
  sim.generate(kUser, "a", "a", 200);
  sim.generate(kUser, "huge", "huge", 5);
  REQUIRE(sim.run_until([&] { return sim.answer(BrokerSim::user(1000).peer, "huge").ends == 1; }));
  const Error* error = sim.answer(BrokerSim::user(1000).peer, "huge").error();
  REQUIRE(error != nullptr);
  CHECK(error->code == ErrorCode::kOutOfMemory);
  CHECK(error->message ==
        "model huge takes 110 bytes (weights 90, KV 20), residency.memory_bytes is 100");
  REQUIRE(sim.run_until([&] { return sim.answer(BrokerSim::user(1000).peer, "a").ends == 1; }));
  CHECK(sim.answer(BrokerSim::user(1000).peer, "a").ids == whole("a", 7, 200));
}

TEST_CASE("after its keep-alive a model is parked, and the next request loads it again") {
  Config config = with_budget(0);
  config.residency.keep_alive_ms = 60'000;
  config.models["b"].keep_alive_ms = 5'000;
  BrokerSim sim({{"a", {}}, {"b", {}}, {"c", {}}}, config);
  for (const char* model : {"a", "b"}) sim.generate(kUser, model, model, 3);
  sim.load("c", "c", 0);  // for good
  REQUIRE(sim.run_until([&] { return sim.dispatcher.requests().size() == 0; }));
  REQUIRE(sim.run_until([&] { return sim.workers.size() == 3; }));
  sim.step(6'000);
  sim.step();
  sim.step();
  CHECK(sim.worker("b") == nullptr);
  CHECK(sim.worker("a") != nullptr);
  // Models that the disk budget ignores: parked models are remembered, and have no open file.
  CHECK(sim.residency.residents().contains("b"));
  CHECK(sim.residency.running() == std::vector<std::string>{"a", "c"});
  sim.step(60'000);
  sim.step();
  sim.step();
  CHECK(sim.worker("a") == nullptr);
  CHECK(sim.worker("c") != nullptr);
  CHECK(sim.residency.find("a")->parked);
  sim.generate(kUser, "again", "a", 3);
  REQUIRE(sim.run_until([&] { return sim.answer(BrokerSim::user(1000).peer, "again").ends == 1; }));
  CHECK(sim.answer(BrokerSim::user(1000).peer, "again").ids == whole("a", 7, 3));
}

TEST_CASE("a user's keep-alive holds until another is asked or the model has left") {
  Config config = with_budget(0);
  config.residency.keep_alive_ms = 10'000;
  config.residency.keep_alive_max_ms = 60'000;
  BrokerSim sim({{"a", {}}, {"b", {}}}, config);
  const Caller other = BrokerSim::user(1001);
  int asked = 0;
  const auto use = [&](const Caller& caller) {
    const std::string id = std::to_string(++asked);
    sim.generate(caller, id, "a", 3);
    REQUIRE(sim.run_until([&] { return sim.answer(caller.peer, id).ends == 1; }));
  };
  const auto stays = [&](int64_t ms) {
    sim.step(ms);
    for (int i = 0; i < 3; ++i) sim.step();
    return sim.worker("a") != nullptr;
  };
  // Longer, up to the bound.
  CHECK(sim.dispatcher.keep_alive(kUser, "a", -1));
  use(kUser);
  CHECK(stays(50'000));
  CHECK_FALSE(stays(20'000));
  // It has left, so the next time is as configured.
  use(kUser);
  CHECK(stays(5'000));
  CHECK_FALSE(stays(10'000));
  // At once, after the answer.
  CHECK(sim.dispatcher.keep_alive(kUser, "a", 0));
  use(kUser);
  CHECK_FALSE(stays(0));
  // Not while another user uses it, too.
  use(other);
  CHECK_FALSE(sim.dispatcher.keep_alive(kUser, "a", 0));
  CHECK_FALSE(sim.dispatcher.release(kUser, "a").ok());
  CHECK(sim.dispatcher.release(kUser, "a").error().code == ErrorCode::kForbidden);
  use(kUser);
  CHECK(stays(5'000));
  CHECK_FALSE(stays(10'000));
  // Nor if an administrator has loaded it.
  sim.load("l", "a");
  REQUIRE(sim.run_until([&] { return sim.answer(BrokerSim::admin().peer, "l").ends == 1; }));
  CHECK_FALSE(sim.dispatcher.release(kUser, "a").ok());
  CHECK_FALSE(stays(11'000));
  // A model that is not there stays away, and nothing is remembered of it.
  CHECK(sim.dispatcher.release(kUser, "a").ok());
  CHECK(sim.dispatcher.release(kUser, "none").error().code == ErrorCode::kNotFound);
  CHECK_FALSE(sim.dispatcher.keep_alive(kUser, "none", 0));
  use(kUser);
  CHECK(stays(5'000));
  CHECK(sim.dispatcher.release(kUser, "a").ok());
  CHECK_FALSE(stays(0));
}

TEST_CASE("a load that names another draft: running requests end first, then the draft changes") {
  BrokerSim sim({{"a", {}}, {"small", {}}}, with_budget(0));
  const auto load = [&](const std::string& id, const std::string& draft) {
    sim.load(id, "a", -1, draft);
    REQUIRE(sim.run_until([&] { return sim.answer(BrokerSim::admin().peer, id).ends == 1; }));
    const auto* reply = sim.answer(BrokerSim::admin().peer, id).as<ipc::LoadReply>();
    REQUIRE(reply != nullptr);
    return reply->draft;
  };
  CHECK(load("1", "auto").empty());
  sim.generate(kUser, "long", "a", 50);
  sim.step();
  CHECK(load("2", "small") == "small");
  CHECK(sim.answer(BrokerSim::user(1000).peer, "long").ids == whole("a", 7, 50));
  CHECK(sim.starts == 2);
  CHECK(load("3", "small") == "small");  // as it is: nothing to do
  CHECK(load("4", "auto") == "small");
  CHECK(sim.starts == 2);
  sim.unload("5", "a");
  REQUIRE(sim.run_until([&] { return sim.workers.empty(); }));
  CHECK(load("6", "auto").empty());
  sim.load("7", "a", -1, "unknown");
  REQUIRE(sim.answer(BrokerSim::admin().peer, "7").error() != nullptr);
  CHECK(sim.answer(BrokerSim::admin().peer, "7").error()->code == ErrorCode::kNotFound);
  CHECK(sim.answer(BrokerSim::admin().peer, "7").error()->field == "draft");
}

TEST_CASE("without loading on demand requests may only reload what was loaded by hand") {
  Config config = with_budget(0);
  config.residency.load_on_demand = false;
  config.residency.keep_alive_ms = 1'000;
  BrokerSim sim({{"a", {}}}, config);
  sim.generate(kUser, "1", "a", 3);
  REQUIRE(sim.answer(BrokerSim::user(1000).peer, "1").error() != nullptr);
  CHECK(sim.answer(BrokerSim::user(1000).peer, "1").error()->code == ErrorCode::kUnavailable);
  sim.load("l", "a");
  REQUIRE(sim.run_until([&] { return sim.answer(BrokerSim::admin().peer, "l").ends == 1; }));
  sim.step(2'000);
  REQUIRE(sim.run_until([&] { return sim.workers.empty(); }));
  sim.generate(kUser, "2", "a", 3);
  REQUIRE(sim.run_until([&] { return sim.answer(BrokerSim::user(1000).peer, "2").ends == 1; }));
  CHECK(sim.answer(BrokerSim::user(1000).peer, "2").as<ipc::DoneEvent>() != nullptr);
  sim.unload("u", "a");
  REQUIRE(sim.run_until([&] { return sim.answer(BrokerSim::admin().peer, "u").ends == 1; }));
  sim.generate(kUser, "3", "a", 3);
  CHECK(sim.answer(BrokerSim::user(1000).peer, "3").error() != nullptr);
}

TEST_CASE("sleep closes the workers it is asked to; requests continue after it") {
  BrokerSim sim({{"a", {}}}, with_budget(0));
  sim.generate(kUser, "r", "a", 200);
  REQUIRE(
      sim.run_until([&] { return sim.answer(BrokerSim::user(1000).peer, "r").ids.size() > 20; }));
  sim.residency.suspend([](const Worker&) { return false; });
  sim.step();
  CHECK(sim.workers.size() == 1);
  sim.residency.resume();
  sim.residency.suspend([](const Worker&) { return true; });
  for (int i = 0; i < 10; ++i) sim.step();
  CHECK(sim.workers.empty());
  CHECK(sim.answer(BrokerSim::user(1000).peer, "r").ends == 0);
  sim.residency.resume();
  REQUIRE(sim.run_until([&] { return sim.answer(BrokerSim::user(1000).peer, "r").ends == 1; }));
  CHECK(sim.answer(BrokerSim::user(1000).peer, "r").ids == whole("a", 7, 200));
  CHECK(sim.answer(BrokerSim::user(1000).peer, "r").as<ipc::DoneEvent>()->resumed == 0);
}

}  // namespace
}  // namespace hearth::broker
