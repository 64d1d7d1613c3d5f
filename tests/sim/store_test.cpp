// The engine with a slow tier: what comes from it changes no token, and what goes wrong in it ends
// no request.

#include <doctest/doctest.h>

#include <random>

#include "memory_store.h"
#include "simulation.h"
#include "tests/skip.h"

namespace hearth::tests {

using namespace engine;

namespace {

struct Setup {
  EngineConfig config;
  FakeModelConfig model;
  std::shared_ptr<MemoryChunks> chunks = std::make_shared<MemoryChunks>();
  MemoryStoreFaults faults;
  int64_t answer_us = 500;

  Setup() {
    config.kv_bytes = 1 << 20;
    config.scheduler.max_seqs = 4;
    model.cost.per_token_us = 1000;  // slow enough that restoring pays
  }

  /// An engine as a new process would have it, over what the store holds.
  std::unique_ptr<Simulation> start() {
    // The layout is the engine's own; the fake model's does not change between starts.
    const Simulation probe(config, model);
    SimStore store;
    store.store = std::make_unique<MemoryStore>(const_cast<Simulation&>(probe).engine().kv_layout(),
                                                chunks, faults);
    store.answer_us = answer_us;
    return std::make_unique<Simulation>(config, model, nullptr, std::move(store));
  }
};

RequestDoneEvent run(Simulation& sim, const Request& request) {
  sim.submit(request);
  sim.run_until_idle();
  const Record& record = sim.record(request.id);
  REQUIRE_MESSAGE(record.done.has_value(), (record.error ? record.error->message : "no end"));
  return *record.done;
}

}  // namespace

TEST_CASE("a prompt computed in one life is restored in the next, in time and to the token") {
  for (const std::vector<int32_t>& windows :
       {std::vector<int32_t>{0}, {0, 40}, {24}, {40, 0, 100}}) {
    CAPTURE(windows.size());
    Setup setup;
    setup.model.windows = windows;
    RequestDoneEvent cold;
    {
      auto sim = setup.start();
      cold = run(*sim, make_request(1, 200, 8));
      CHECK(cold.cached_tokens == 0);
      CHECK(cold.restore_us <= 2'000);  // a miss is found out soon
      sim->check_all_ended();
    }
    REQUIRE_FALSE(setup.chunks->rows.empty());
    auto sim = setup.start();
    const RequestDoneEvent warm = run(*sim, make_request(1, 200, 8));
    CHECK(warm.cached_tokens == 192);
    CHECK(warm.cached_disk_tokens == 192);
    CHECK(warm.saved_us > 0);
    CHECK(warm.ttft_us < cold.ttft_us / 4);
    // And then it is in memory.
    const RequestDoneEvent hot = run(*sim, make_request(2, 200, 8));
    CHECK(hot.cached_tokens == 192);
    CHECK(hot.cached_disk_tokens == 0);
    sim->check_all_ended();
  }
}

TEST_CASE("what a turn said is there for the next one") {
  Setup setup;
  Request turn = make_request(1, 100, 60);
  {
    auto sim = setup.start();
    run(*sim, turn);
    const std::vector<int32_t> said = sim->record(1).tokens[0];
    turn.prompt.insert(turn.prompt.end(), said.begin(), said.end());
  }
  for (int32_t i = 0; i < 20; ++i) turn.prompt.push_back(i);
  turn.id = 2;
  auto sim = setup.start();
  const RequestDoneEvent done = run(*sim, turn);
  CHECK(done.cached_disk_tokens == 144);  // 159 tokens had KV: nine full blocks
  sim->check_all_ended();
}

TEST_CASE("half a chain is restored where half is there, behind what is in memory") {
  Setup setup;
  {
    auto sim = setup.start();
    run(*sim, make_request(1, 400, 2));
  }
  auto sim = setup.start();
  Request front = make_request(1, 101, 2);  // restores 6 blocks
  CHECK(run(*sim, front).cached_disk_tokens == 96);
  Request longer = make_request(2, 300, 2);
  for (size_t i = 250; i < 300; ++i) longer.prompt[i] = 3;
  const RequestDoneEvent done = run(*sim, longer);
  CHECK(done.cached_tokens == 240);
  CHECK(done.cached_disk_tokens == 144);
  sim->check_all_ended();
}

TEST_CASE("cache off and memory-only requests leave nothing in the store and ask it nothing") {
  Setup setup;
  auto sim = setup.start();
  Request request = make_request(1, 200, 2);
  request.use_prefix_store = false;
  run(*sim, request);
  CHECK(setup.chunks->rows.empty());
  request = make_request(2, 300, 2, 5);
  request.use_prefix_cache = false;
  run(*sim, request);
  CHECK(setup.chunks->rows.empty());
  run(*sim, make_request(3, 100, 2, 9));
  CHECK(setup.chunks->rows.size() == 1);

  auto next = setup.start();
  request = make_request(1, 100, 2, 9);
  request.use_prefix_store = false;
  CHECK(run(*next, request).cached_tokens == 0);
}

TEST_CASE("another owner's prefix is not found") {
  Setup setup;
  {
    auto sim = setup.start();
    run(*sim, make_request(1, 200, 2));
  }
  auto sim = setup.start();
  Request other = make_request(1, 200, 2);
  other.owner = other.cache_salt = "uid:1001";
  CHECK(run(*sim, other).cached_tokens == 0);
}

TEST_CASE("a store that is slower than computing is not waited for longer than computing takes") {
  Setup setup;
  {
    auto sim = setup.start();
    run(*sim, make_request(1, 200, 4));
  }
  setup.answer_us = 500'000;  // each answer; recomputing takes 200 ms
  auto sim = setup.start();
  sim->engine().warm_up();
  const int64_t received_us = sim->clock().now_us();
  Request request = make_request(1, 200, 4);
  request.received_us = received_us;
  const RequestDoneEvent done = run(*sim, request);
  CHECK(done.cached_tokens == 0);
  CHECK(done.restore_us > 100'000);
  CHECK(done.restore_us <= 240'000);
  CHECK(done.ttft_us <= 480'000);
  sim->check_all_ended();
}

TEST_CASE("others run while one is restoring") {
  Setup setup;
  {
    auto sim = setup.start();
    run(*sim, make_request(1, 400, 2));
  }
  setup.answer_us = 30'000;
  auto sim = setup.start();
  sim->submit(make_request(1, 400, 2));
  sim->submit(make_request(2, 20, 40, 30));
  while (!sim->record(1).started) sim->step();
  CHECK(sim->record(2).tokens[0].size() > 5);
  CHECK(sim->record(1).started->cached_tokens == 384);
  sim->run_until_idle();
  sim->check_all_ended();
}

TEST_CASE("cancelled and expired while restoring") {
  Setup setup;
  {
    auto sim = setup.start();
    run(*sim, make_request(1, 400, 2));
  }
  setup.answer_us = 100'000;
  auto sim = setup.start();
  sim->submit(make_request(1, 400, 2));
  Request late = make_request(2, 400, 2);
  late.deadline_us = sim->clock().now_us() + 50'000;
  sim->submit(late);
  sim->step();
  sim->record(1).cancelled = sim->record(2).cancelled = true;
  sim->post(CancelRequest{1});
  sim->run_until_idle();
  CHECK(sim->record(1).sample_done[0] == FinishReason::kCancelled);
  CHECK(sim->record(2).sample_done[0] == FinishReason::kDeadline);
  // What is still under way finds nobody.
  CHECK(run(*sim, make_request(3, 100, 2, 40)).cached_tokens == 0);
}

TEST_CASE("what a request wants kept is pinned: its prompt, or beginnings of it") {
  Setup setup;
  auto sim = setup.start();
  Request request = make_request(1, 200, 40);
  request.kept = {{200, 3600}};
  run(*sim, request);
  request = make_request(2, 100, 2, 7);
  request.kept = {{50, 60}, {16, 600}, {1000, 1}};
  run(*sim, request);
  run(*sim, make_request(3, 100, 2, 9));
  REQUIRE(setup.chunks->pins.size() == 4);
  CHECK(setup.chunks->pins[0].num_blocks == 12);
  CHECK(setup.chunks->pins[0].seconds == 3600);
  CHECK(setup.chunks->pins[1].num_blocks == 3);
  CHECK(setup.chunks->pins[2].num_blocks == 1);
  CHECK(setup.chunks->pins[2].seconds == 600);
  CHECK(setup.chunks->pins[3].num_blocks == 6);  // the prompt's, not the answer's
}

TEST_CASE("a preempted sequence goes on from its blocks, in memory or from the store") {
  enum class Held { kMemory, kStore, kNowhere };
  for (const Held held : {Held::kMemory, Held::kStore, Held::kNowhere}) {
    CAPTURE(static_cast<int>(held));
    Setup setup;
    setup.config.scheduler.max_seqs = 1;
    // A pool for both of them, or for little more than one.
    if (held != Held::kMemory) setup.config.kv_bytes = 36 * 512;
    auto sim = setup.start();
    Request low = make_request(1, 200, 100);
    low.priority = Priority::kBatch;
    low.use_prefix_store = held == Held::kStore;
    sim->submit(low);
    while (sim->record(1).tokens.empty() || sim->record(1).tokens[0].size() < 50) sim->step();
    Request high = make_request(2, 300, 100, 20);
    high.priority = Priority::kInteractive;
    sim->submit(high);
    sim->run_until_idle();
    sim->check_all_ended();
    REQUIRE(sim->record(1).done->preemptions == 1);
    // Both prompts once, and of the preempted one a block and its last token at most.
    const uint64_t again = sim->engine().snapshot().prefill_tokens_total - 500;
    CHECK((again <= 17) == (held != Held::kNowhere));
  }
}

TEST_CASE("any mixture of requests, restarts, faults and evictions: the right tokens") {
  const int rounds = full_counts() ? 400 : 24;
  int64_t restored = 0;
  for (int round = 0; round < rounds; ++round) {
    CAPTURE(round);
    std::mt19937 random(static_cast<uint32_t>(round) + 1);
    const auto below = [&](int32_t n) {
      return static_cast<int32_t>(random() % static_cast<uint32_t>(n));
    };
    Setup setup;
    const std::vector<std::vector<int32_t>> kinds = {{0}, {0, 40}, {24}, {20, 0}, {0, 0}};
    setup.model.windows = kinds[static_cast<size_t>(below(5))];
    setup.config.scheduler.max_step_tokens = 16 + below(200);
    setup.config.scheduler.max_seqs = 1 + below(6);
    // Pools that hold one context, or little more: restored blocks are evicted under others' feet.
    setup.config.kv_bytes =
        static_cast<uint64_t>(36 + below(60)) * 512 * setup.model.windows.size() * 2;
    setup.config.always_restore = below(2) == 0;
    setup.answer_us = 1 + below(20'000);
    auto faulty = std::make_shared<std::mt19937>(random());
    const uint32_t share = below(2) == 0 ? 0 : 20;
    const auto sometimes = [faulty, share] { return (*faulty)() % 100 < share; };
    setup.faults = {sometimes, sometimes, sometimes, sometimes};
    for (int life = 0; life < 3; ++life) {
      auto sim = setup.start();
      const int requests = 3 + below(10);
      for (int i = 1; i <= requests; ++i) {
        Request request =
            make_request(static_cast<RequestId>(i), 1 + below(300), 1 + below(30), below(3) * 10);
        if (below(3) == 0) {
          for (size_t at = request.prompt.size() / 2; at < request.prompt.size(); ++at) {
            request.prompt[at] = below(61);
          }
        }
        request.n = below(6) == 0 ? std::min(2, setup.config.scheduler.max_seqs) : 1;
        request.use_prefix_cache = below(8) != 0;
        request.priority = static_cast<Priority>(below(3));
        sim->submit(request);
        if (below(3) == 0) {
          sim->record(request.id).cancelled = true;
          for (int steps = below(6); steps > 0; --steps) sim->step();
          sim->post(CancelRequest{request.id});
        }
        for (int steps = below(5); steps > 0; --steps) sim->step();
      }
      sim->run_until_idle();
      sim->check_all_ended();
      for (const auto& [id, record] : sim->records()) {
        if (record.done) restored += record.done->cached_disk_tokens;
      }
    }
  }
  CHECK(restored > 100 * rounds);
}

}  // namespace hearth::tests
