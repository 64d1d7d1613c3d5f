// In whatever order loads, unloads, swaps, requests, cancels, deaths and sleep come: every request
// and every verb is answered once, with all its tokens or an error that names the reason; memory
// stays within its budget; and nothing is left allocated.

#include <doctest/doctest.h>

#include "tests/skip.h"
#include "tests/unit/daemon/broker_sim.h"

namespace hearth::broker {
namespace {

constexpr uint64_t kBudget = 100;
const std::vector<std::string> kModels = {"a", "b", "c", "wide", "bad", "huge"};

std::map<std::string, ModelTraits> traits() {
  return {{"a", {.weight_bytes = 30, .kv_bytes = 10}},
          {"b", {.weight_bytes = 30, .kv_bytes = 10, .load_steps = 8}},
          {"c", {.weight_bytes = 20, .kv_bytes = 5, .load_steps = 1}},
          {"wide", {.weight_bytes = 70, .kv_bytes = 30, .load_steps = 5}},
          {"bad", {.fails = Error{ErrorCode::kCorrupt, "cut", ""}}},
          {"huge", {.weight_bytes = 100, .kv_bytes = 1}}};
}

Config settings(std::mt19937_64& random) {
  Config config;
  config.roles = {{"default", "a"}, {"fast", "c"}};
  config.residency.memory_bytes = kBudget;
  config.residency.turn_ms = static_cast<int64_t>(random() % 500);
  config.residency.keep_alive_ms = random() % 2 == 0 ? 0 : 300;
  config.residency.load_on_demand = random() % 8 != 0;
  config.limits.max_resident = 1 + static_cast<int64_t>(random() % 4);
  config.limits.max_requests = 24;
  config.limits.max_requests_per_owner = 12;
  config.worker.restart_delay_ms = 10;
  config.worker.restart_delay_max_ms = 200;
  return config;
}

struct Asked {
  PeerId peer;
  std::string id;
  uint64_t seed = 0;
  uint32_t tokens = 0;  ///< 0: a verb
};

class Interleaving {
 public:
  explicit Interleaving(uint64_t seed) : random_(seed), sim_(traits(), settings(random_), seed) {}

  void run(int actions) {
    for (int i = 0; i < actions; ++i) {
      act();
      for (uint64_t steps = random_() % 3; steps > 0; --steps) step();
    }
    sim_.residency.resume();
    REQUIRE(sim_.run_until([&] {
      check_memory();
      return sim_.dispatcher.requests().size() == 0 && sim_.verbs.num_waiting() == 0;
    }));
    for (const Asked& asked : asked_) check(asked);
    check_nothing_left();
  }

 private:
  uint64_t below(uint64_t n) { return random_() % n; }
  const std::string& any_model() { return kModels[below(kModels.size())]; }
  std::string new_id(const char* kind) { return kind + std::to_string(++last_id_); }

  void act() {
    switch (below(14)) {
      case 0: return verb([&](const std::string& id) { sim_.load(id, any_model()); });
      case 1: return verb([&](const std::string& id) { sim_.unload(id, any_model()); });
      case 2:
        return verb([&](const std::string& id) {
          sim_.swap(id, below(2) == 0 ? "default" : "fast", any_model());
        });
      case 3: return kill_one();
      case 4: return sim_.residency.suspend([&](const Worker&) { return below(2) == 0; });
      case 5:
      case 6: return sim_.residency.resume();
      case 7: return cancel_one();
      case 8: return sim_.step(static_cast<int64_t>(below(1500)));
      case 9: return hang_up();
      default: return request();
    }
  }

  template <class Ask>
  void verb(Ask ask) {
    asked_.push_back({BrokerSim::admin().peer, new_id("verb"), 0, 0});
    ask(asked_.back().id);
  }

  void request() {
    const Caller caller = BrokerSim::user(1000 + static_cast<uint32_t>(below(3)));
    if (sim_.gone.contains(caller.peer)) return;
    const std::string model = below(2) == 0 ? (below(2) == 0 ? "default" : "fast") : any_model();
    asked_.push_back(
        {caller.peer, new_id("request"), random_(), 1 + static_cast<uint32_t>(below(40))});
    const Asked& asked = asked_.back();
    sim_.generate(caller, asked.id, model, static_cast<int32_t>(asked.tokens), asked.seed);
  }

  void cancel_one() {
    if (asked_.empty()) return;
    const Asked& asked = asked_[below(asked_.size())];
    if (asked.tokens > 0) sim_.cancel(BrokerSim::admin(asked.peer), asked.id);
  }

  void kill_one() {
    if (!sim_.workers.empty()) sim_.workers[below(sim_.workers.size())]->die();
  }

  // One of the clients closes its connection, rarely.
  void hang_up() {
    if (below(10) == 0) sim_.gone.insert(BrokerSim::user(1002).peer);
  }

  void step() {
    sim_.step();
    check_memory();
  }

  void check_memory() {
    CHECK(sim_.bytes_held() <= kBudget);
    CHECK(sim_.workers.size() <= static_cast<size_t>(sim_.config.limits.max_resident));
  }

  void check(const Asked& asked) {
    if (sim_.gone.contains(asked.peer)) return;
    CAPTURE(asked.id);
    const SimAnswer& answer = sim_.answer(asked.peer, asked.id);
    REQUIRE(answer.ends == 1);
    if (const Error* error = answer.error()) {
      CHECK(error->code != ErrorCode::kInternal);
      CHECK_FALSE(error->message.empty());
      return;
    }
    if (asked.tokens == 0) return;
    const auto* done = answer.as<ipc::DoneEvent>();
    REQUIRE(done != nullptr);
    if (done->finish_reasons[0] == "length") CHECK(answer.ids.size() == asked.tokens);
    for (uint32_t i = 0; i < answer.ids.size(); ++i) {
      REQUIRE(answer.ids[i] == BrokerSim::token(done->model, asked.seed, i));
    }
  }

  void check_nothing_left() {
    CHECK_FALSE(sim_.output.has_backlog());
    CHECK(sim_.dispatcher.requests().queued_bytes() == 0);
    for (const FakeWorker* worker : sim_.workers) {
      if (worker->state() == Worker::State::kReady) CHECK(worker->num_live() == 0);
    }
    sim_.residency.drain();
    CHECK(sim_.run_until([&] { return sim_.residency.empty(); }, 100));
  }

  std::mt19937_64 random_;
  BrokerSim sim_;
  std::vector<Asked> asked_;
  uint64_t last_id_ = 0;
};

TEST_CASE("random loads, unloads, swaps, requests, cancels and deaths end well in every order") {
  const uint64_t runs = tests::full_counts() ? 1000 : 200;
  for (uint64_t seed = 1; seed <= runs; ++seed) {
    CAPTURE(seed);
    Interleaving(seed).run(60);
  }
  if (const uint64_t night = tests::night_seed(); night != 0) {
    MESSAGE("seeds " << night << " to " << night + runs / 4 - 1);
    for (uint64_t seed = night; seed < night + runs / 4; ++seed) {
      CAPTURE(seed);
      Interleaving(seed).run(60);
    }
  }
}

}  // namespace
}  // namespace hearth::broker
