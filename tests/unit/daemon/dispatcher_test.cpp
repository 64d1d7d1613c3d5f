#include "daemon/broker/requests/dispatcher.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "ipc/wire/codec.h"
#include "ipc/wire/frames.h"
#include "tests/unit/daemon/broker_sim.h"

namespace hearth::broker {
namespace {

const Caller kAsks = BrokerSim::user(1000);

/// A broker whose worker of "a" has one request, "r", and has not answered it.
struct OneForwarded {
  OneForwarded() : sim({{"a", {}}, {"b", {}}}, Config()) {
    sim.load("l", "a");
    REQUIRE(sim.run_until([&] { return sim.answer(BrokerSim::admin().peer, "l").ends == 1; }));
    sim.generate(kAsks, "r", "a", 100);
    number = sim.dispatcher.requests().numbers([](const LiveRequest&) { return true; }).at(0);
  }
  void event(const std::string& json, const std::string& model = "a") {
    ipc::Answer answer;
    answer.json = json;
    sim.dispatcher.on_answer(model, number, answer, sim.clock.now_us());
  }
  SimAnswer& met() { return sim.answer(kAsks.peer, "r"); }
  size_t live() const { return sim.dispatcher.requests().size(); }

  BrokerSim sim;
  uint64_t number = 0;
};

TEST_CASE("a worker's last event reaches the client byte for byte") {
  for (const std::string json :
       {R"({"event":"done","finish_reasons":["length"],"model":"a","seed":7,"later":[1,2]})",
        R"({"event":"error","code":"internal","message":"m","later":1})",
        R"({"event":"reply","verb":"tokenize","ids":[1], "later" : 1})"}) {
    OneForwarded one;
    one.event(json);
    CHECK(one.met().last_json == json);
    CHECK(one.live() == 0);
  }
}

TEST_CASE("what the broker adds to a worker's last event is in it") {
  OneForwarded one;
  one.event(R"({"event":"error","code":"busy","message":"m"})");
  const auto* error = one.met().as<ipc::ErrorEvent>();
  REQUIRE(error != nullptr);
  CHECK(error->error.code == ErrorCode::kBusy);
  CHECK(error->retry_ms > 0);

  BrokerSim sim({{"a", {}}}, Config());
  sim.generate(kAsks, "r", "a", 100);
  REQUIRE(sim.run_until([&] { return sim.answer(kAsks.peer, "r").ids.size() > 5; }));
  sim.worker("a")->die();
  REQUIRE(sim.run_until([&] { return sim.answer(kAsks.peer, "r").ends == 1; }));
  REQUIRE(sim.answer(kAsks.peer, "r").as<ipc::DoneEvent>() != nullptr);
  CHECK(sim.answer(kAsks.peer, "r").as<ipc::DoneEvent>()->resumed == 1);
}

TEST_CASE("a worker's answer to another model's request, or to none, changes nothing") {
  OneForwarded one;
  const std::string done = R"({"event":"done","finish_reasons":["length"],"model":"a"})";
  one.event(done, "b");
  ++one.number;
  one.event(done);
  CHECK(one.live() == 1);
  CHECK(one.met().ends == 0);
}

TEST_CASE("an event that is not one is dropped") {
  OneForwarded one;
  for (const std::string json : {"", "{}", "rubbish", R"({"event":"sung"})", R"({"event":"done")",
                                 R"({"event":"done","event":"error","code":"busy"})"}) {
    one.event(json);
  }
  CHECK(one.live() == 1);
  CHECK(one.met().ends == 0);
  CHECK(one.met().events.empty());
}

TEST_CASE("waits for tokens are counted per model and sample, and requests that wait for a model") {
  const std::string ids = ipc::encode_ids(std::vector<int32_t>{5});
  OneForwarded one;
  const auto arrive = [&](uint32_t first_index, uint32_t num_tokens) {
    const std::string payload = ipc::encode_delta_payload(
        {.sample = 0, .first_index = first_index, .num_tokens = num_tokens}, std::string_view("x"));
    ipc::Answer delta;
    delta.is_delta = true;
    delta.payload = payload;
    if (num_tokens > 0) delta.ids = ids;
    one.sim.dispatcher.on_answer("a", one.number, delta, one.sim.clock.now_us());
  };
  const auto bucket_of = [](const http::Durations& durations) {
    return std::ranges::find(durations.counts, uint64_t{1}) - durations.counts.begin();
  };
  one.sim.clock.advance_us(30'000);
  arrive(0, 1);
  one.sim.clock.advance_us(10'000);
  arrive(1, 1);
  one.sim.clock.advance_us(1'000'000);
  arrive(2, 0);  // the end of the text, no token
  http::ModelTraffics traffic = one.sim.dispatcher.traffic();
  REQUIRE(traffic.size() == 1);
  const http::ModelTraffic& of_a = traffic.at("a");
  CHECK(of_a.num_waiting == 0);
  CHECK(of_a.ttft.sum_us == 30'000);
  CHECK(of_a.ttft.bounds[bucket_of(of_a.ttft)].us == 40'000);
  CHECK(of_a.gaps.sum_us == 10'000);
  CHECK(of_a.gaps.bounds[bucket_of(of_a.gaps)].us == 10'000);  // a bound is in its bucket
  CHECK(std::accumulate(of_a.gaps.counts.begin(), of_a.gaps.counts.end(), uint64_t{0}) == 1);

  one.sim.generate(kAsks, "s", "b", 1);
  traffic = one.sim.dispatcher.traffic();
  CHECK(traffic.at("b").num_waiting == 1);
  CHECK(traffic.at("b").ttft.sum_us == 0);
  REQUIRE(one.sim.run_until([&] { return one.sim.answer(kAsks.peer, "s").ends == 1; }));
  CHECK(one.sim.dispatcher.traffic().at("b").num_waiting == 0);

  http::Durations durations{.bounds = http::kGapBounds};
  durations.add(-5);  // never less than nothing in the sum
  durations.add(std::numeric_limits<int64_t>::max());
  CHECK(durations.counts[0] == 1);
  CHECK(durations.counts[http::kGapBounds.size()] == 1);
  CHECK(durations.sum_us == std::numeric_limits<int64_t>::max());
}

TEST_CASE("a delta that does not follow ends its request") {
  const std::string ids = ipc::encode_ids(std::vector<int32_t>{5});
  for (const std::string& payload :
       {std::string("short"),
        ipc::encode_delta_payload({.sample = 0, .first_index = 1, .num_tokens = 1},
                                  std::string_view("x"))}) {
    OneForwarded one;
    ipc::Answer delta;
    delta.is_delta = true;
    delta.payload = payload;
    delta.ids = ids;
    one.sim.dispatcher.on_answer("a", one.number, delta, one.sim.clock.now_us());
    REQUIRE(one.met().error() != nullptr);
    CHECK(one.met().error()->code == ErrorCode::kInternal);
    CHECK(one.met().ids.empty());
  }
}

}  // namespace
}  // namespace hearth::broker
