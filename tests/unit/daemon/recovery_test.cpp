// Requests whose worker dies: the one that kills it is refused, and no other; a text never
// continues with another model's weights.

#include <doctest/doctest.h>

#include "tests/unit/daemon/broker_sim.h"

namespace hearth::broker {
namespace {

constexpr uint64_t kCulprit = 666;
constexpr int32_t kTokens = 40;

Config settings() {
  Config config;
  config.worker.restart_delay_ms = 10;
  config.worker.restart_delay_max_ms = 50;
  return config;
}

bool whole(const SimAnswer& answer, uint64_t seed) {
  if (answer.as<ipc::DoneEvent>() == nullptr || answer.ids.size() != kTokens) return false;
  for (uint32_t i = 0; i < answer.ids.size(); ++i) {
    if (answer.ids[i] != BrokerSim::token("m", seed, i)) return false;
  }
  return true;
}

// Eight requests of eight users, of which the seeds in `deadly` end the worker after a number of
// tokens: they are refused, all others end with their whole text.
void run_eight(const std::map<uint64_t, uint32_t>& deadly, uint64_t most_starts) {
  BrokerSim sim({{"m", {}}}, settings());
  sim.deadly = deadly;
  const std::vector<uint64_t> seeds = {1, 2, 3, kCulprit, 5, 6, 7, 8};
  for (size_t i = 0; i < seeds.size(); ++i) {
    sim.generate(BrokerSim::user(1000 + static_cast<uint32_t>(i)), "r", "m", kTokens, seeds[i]);
  }
  REQUIRE(sim.run_until([&] { return sim.dispatcher.requests().size() == 0; }));
  for (size_t i = 0; i < seeds.size(); ++i) {
    CAPTURE(seeds[i]);
    const SimAnswer& answer =
        sim.answer(BrokerSim::user(1000 + static_cast<uint32_t>(i)).peer, "r");
    if (deadly.contains(seeds[i])) {
      REQUIRE(answer.error() != nullptr);
      CHECK(answer.error()->code == ErrorCode::kPoison);
    } else {
      CHECK(whole(answer, seeds[i]));
    }
  }
  CHECK(sim.starts <= most_starts);
  // All suspects have ended: new requests run concurrently.
  for (uint32_t i = 0; i < 4; ++i) sim.generate(BrokerSim::user(1), std::to_string(i), "m", 40, i);
  REQUIRE(sim.run_until([&] { return sim.worker("m") != nullptr && sim.worker("m")->is_ready(); }));
  CHECK(sim.worker("m")->num_live() == 4);
}

TEST_CASE("of eight concurrent requests only the one that kills the worker is refused") {
  run_eight({{kCulprit, 0}}, 4);
  run_eight({{1, 0}}, 3);  // alone when it is tried
  run_eight({{8, 0}}, 4);
}

TEST_CASE("a request that kills the worker late is found, too, and so are several") {
  run_eight({{kCulprit, 20}}, 4);
  run_eight({{kCulprit, 3}, {7, 0}, {1, 30}}, 10);
}

TEST_CASE("a request that was alone at two deaths is refused at once") {
  BrokerSim sim({{"m", {}}}, settings());
  sim.deadly = {{kCulprit, 5}};
  sim.generate(BrokerSim::user(1000), "r", "m", kTokens, kCulprit);
  REQUIRE(sim.run_until([&] { return sim.dispatcher.requests().size() == 0; }));
  const SimAnswer& answer = sim.answer(BrokerSim::user(1000).peer, "r");
  REQUIRE(answer.error() != nullptr);
  CHECK(answer.error()->code == ErrorCode::kPoison);
  CHECK(sim.starts == 2);
}

TEST_CASE("while suspects are tried, new requests wait with a reported reason") {
  BrokerSim sim({{"m", {}}}, settings());
  sim.generate(BrokerSim::user(1000), "old", "m", 400, 1);
  sim.generate(BrokerSim::user(1001), "old", "m", 400, 2);
  REQUIRE(sim.run_until([&] { return sim.worker("m") && sim.worker("m")->num_live() == 2; }));
  sim.worker("m")->die();
  REQUIRE(sim.run_until([&] { return sim.starts == 2 && sim.worker("m")->is_ready(); }));
  CHECK(sim.worker("m")->num_live() == 1);
  sim.generate(BrokerSim::user(1002), "new", "m", kTokens, 3);
  CHECK(sim.worker("m")->num_live() == 1);
  const SimAnswer& waits = sim.answer(BrokerSim::user(1002).peer, "new");
  REQUIRE(waits.events.size() == 1);
  CHECK(std::get<ipc::QueuedEvent>(waits.events[0]).reason == "recovering");
  // A token of each suspect, and all three are there.
  REQUIRE(sim.run_until([&] { return sim.worker("m")->num_live() == 3; }));
  REQUIRE(sim.run_until([&] { return sim.dispatcher.requests().size() == 0; }));
  CHECK(whole(waits, 3));
  CHECK(sim.answer(BrokerSim::user(1000).peer, "old").ids.size() == 400);
  CHECK(sim.answer(BrokerSim::user(1001).peer, "old").ids.size() == 400);
}

TEST_CASE("that reasoning is to end is known to every worker that has the request") {
  BrokerSim sim({{"m", {}}}, settings());
  sim.generate(BrokerSim::user(1000), "early", "m", 400, 1);
  sim.generate(BrokerSim::user(1000), "late", "m", 400, 2);
  sim.generate(BrokerSim::user(1000), "never", "m", 400, 3);
  // Before a worker is there, after it has the request, and after it has died.
  CHECK(sim.dispatcher.end_reasoning(BrokerSim::user(1000), "early").ok());
  REQUIRE(sim.run_until([&] { return sim.worker("m") && sim.worker("m")->num_live() == 3; }));
  CHECK(sim.worker("m")->num_end_reasoning() == 1);
  sim.dispatcher.cancel(BrokerSim::user(1000), "c", {.id = "late", .reasoning = true});
  CHECK(sim.answer(BrokerSim::user(1000).peer, "c").as<ipc::CancelReply>() != nullptr);
  CHECK(sim.worker("m")->num_end_reasoning() == 2);
  CHECK(sim.dispatcher.end_reasoning(BrokerSim::user(1001), "never").error().code ==
        ErrorCode::kNotFound);
  CHECK(sim.dispatcher.end_reasoning(BrokerSim::admin(), "never").ok());
  CHECK(sim.worker("m")->num_end_reasoning() == 3);
  sim.worker("m")->die();
  REQUIRE(sim.run_until(
      [&] { return sim.starts == 2 && sim.worker("m") && sim.worker("m")->num_live() == 3; }));
  CHECK(sim.worker("m")->num_end_reasoning() == 3);
  REQUIRE(sim.run_until([&] { return sim.dispatcher.requests().size() == 0; }));
  CHECK(sim.answer(BrokerSim::user(1000).peer, "late").ids.size() == 400);
  CHECK_FALSE(sim.dispatcher.end_reasoning(BrokerSim::user(1000), "late").ok());
}

TEST_CASE("a request over HTTP is found by the id of its answer and by x-request-id") {
  BrokerSim sim({{"m", {}}}, settings());
  const Caller user = BrokerSim::user(1000);
  sim.generate(user, "http-i-1", "m", 400, 1);
  for (const char* id : {"http-i-1", "i-1", "chatcmpl-i-1", "msg_i-1"}) {
    CHECK_MESSAGE(sim.dispatcher.end_reasoning(user, id).ok(), id);
    CHECK_FALSE_MESSAGE(sim.dispatcher.end_reasoning(BrokerSim::user(1001), id).ok(), id);
  }
  CHECK_FALSE(sim.dispatcher.end_reasoning(user, "i-2").ok());
  sim.dispatcher.cancel(user, "c", {.id = "i-1"});
  const auto* reply = sim.answer(user.peer, "c").as<ipc::CancelReply>();
  REQUIRE(reply != nullptr);
  CHECK(reply->id == "i-1");
  CHECK(sim.dispatcher.requests().size() == 0);
}

TEST_CASE("a text does not continue after its model's file was changed") {
  BrokerSim sim({{"m", {}}}, settings());
  sim.fingerprints["m"] = "one";
  sim.generate(BrokerSim::user(1000), "r", "m", kTokens, 1);
  const SimAnswer& answer = sim.answer(BrokerSim::user(1000).peer, "r");
  REQUIRE(sim.run_until([&] { return answer.ids.size() > 5; }));
  sim.fingerprints["m"] = "two";
  sim.worker("m")->die();
  REQUIRE(sim.run_until([&] { return sim.dispatcher.requests().size() == 0; }));
  REQUIRE(answer.error() != nullptr);
  CHECK(answer.error()->code == ErrorCode::kUnavailable);
  CHECK(answer.error()->message.find("changed") != std::string::npos);
  CHECK(answer.ids.size() < kTokens);
  // The next request uses the new file.
  sim.generate(BrokerSim::user(1000), "next", "m", kTokens, 2);
  REQUIRE(sim.run_until([&] { return sim.dispatcher.requests().size() == 0; }));
  CHECK(whole(sim.answer(BrokerSim::user(1000).peer, "next"), 2));
}

TEST_CASE(
    "a request without text starts with the changed file; one with an unchanged file continues") {
  for (const bool changed : {false, true}) {
    BrokerSim sim({{"m", {}}}, settings());
    sim.fingerprints["m"] = "one";
    sim.deadly = {{9, 0}};  // ends the worker before any token
    sim.generate(BrokerSim::user(1000), "r", "m", kTokens, changed ? 9 : 1);
    const SimAnswer& answer = sim.answer(BrokerSim::user(1000).peer, "r");
    if (changed) {
      REQUIRE(sim.run_until([&] { return sim.starts == 1 && sim.workers.empty(); }));
      sim.fingerprints["m"] = "two";
      sim.deadly.clear();
    } else {
      REQUIRE(sim.run_until([&] { return answer.ids.size() > 5; }));
      sim.worker("m")->die();
    }
    REQUIRE(sim.run_until([&] { return sim.dispatcher.requests().size() == 0; }));
    CHECK(whole(answer, changed ? 9 : 1));
  }
}

}  // namespace
}  // namespace hearth::broker
