// The engine with a slow tier: what it restores changes no token, and its failures end no request.

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
  double us_per_byte = 0;

  Setup() {
    config.kv_bytes = 1 << 20;
    config.scheduler.max_seqs = 4;
    model.cost.per_token_us = 1000;  // slow enough that restoring pays
  }

  /// A new process's engine with the store's content.
  std::unique_ptr<Simulation> start() {
    // The layout is the engine's own; the fake model's does not change between starts.
    const Simulation probe(config, model);
    SimStore store;
    store.store = std::make_unique<MemoryStore>(const_cast<Simulation&>(probe).engine().kv_layout(),
                                                chunks, faults);
    store.answer_us = answer_us;
    store.us_per_byte = us_per_byte;
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

TEST_CASE("a prompt computed in one process is restored in the next, in time and to the token") {
  for (const std::vector<int32_t>& windows :
       {std::vector<int32_t>{0}, {0, 40}, {24}, {40, 0, 100}, {0, kRecurrent}, {kRecurrent}}) {
    CAPTURE(windows.size());
    Setup setup;
    setup.model.windows = windows;
    RequestDoneEvent cold;
    {
      auto sim = setup.start();
      cold = run(*sim, make_request(1, 200, 8));
      CHECK(cold.cached_tokens == 0);
      CHECK(cold.restore_us <= 2'000);  // a miss is detected soon
      sim->check_all_ended();
    }
    REQUIRE_FALSE(setup.chunks->rows.empty());
    auto sim = setup.start();
    const RequestDoneEvent warm = run(*sim, make_request(1, 200, 8));
    CHECK(warm.cached_tokens == 192);
    CHECK(warm.cached_disk_tokens == 192);
    CHECK(warm.saved_us == 0);  // the time of computing was never measured in this process
    CHECK(warm.ttft_us < cold.ttft_us / 4);
    // And then it is in memory.
    const RequestDoneEvent hot = run(*sim, make_request(2, 200, 8));
    CHECK(hot.cached_tokens == 192);
    CHECK(hot.cached_disk_tokens == 0);
    sim->check_all_ended();
  }
}

TEST_CASE("an answer in one turn is cached for the next turn") {
  Setup setup;
  Request turn = make_request(1, 100, 60);
  {
    auto sim = setup.start();
    run(*sim, turn);
    const std::vector<int32_t> output = sim->record(1).tokens[0];
    turn.prompt.insert(turn.prompt.end(), output.begin(), output.end());
  }
  for (int32_t i = 0; i < 20; ++i) turn.prompt.push_back(i);
  turn.id = 2;
  auto sim = setup.start();
  const RequestDoneEvent done = run(*sim, turn);
  CHECK(done.cached_disk_tokens == 144);  // 159 tokens had KV: nine full blocks
  sim->check_all_ended();
}

TEST_CASE("the stored half of a chain is restored after the part in memory") {
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

TEST_CASE("cache off and memory-only requests neither read nor write the store") {
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

TEST_CASE("a slow store is not waited for longer than computing takes") {
  Setup setup;
  {
    auto sim = setup.start();
    run(*sim, make_request(1, 200, 4));
  }
  setup.answer_us = 500'000;  // each answer; computing again takes 200 ms
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

TEST_CASE("other requests run while one is being restored") {
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

TEST_CASE("cancelled and expired during a restore") {
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
  // What is still under way has no request left.
  CHECK(run(*sim, make_request(3, 100, 2, 40)).cached_tokens == 0);
}

TEST_CASE("what a request marks is pinned: its prompt, or beginnings of it") {
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

TEST_CASE("a preempted sequence continues from its blocks, in memory or from the store") {
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
    // Both prompts once, and at most one block and the last token of the preempted one.
    const uint64_t again = sim->engine().snapshot().prefill_tokens_total - 500;
    CHECK((again <= 17) == (held != Held::kNowhere));
  }
}

// ---- Computing the beginning while the end is loaded ------------------------------------------

namespace {

/// 256 tokens a chunk, 4 KiB a token.
struct BesideSetup : Setup {
  BesideSetup() {
    config.kv_bytes = 16 << 20;
    config.scheduler.max_step_tokens = 32;
    model.num_layers = 256;
    model.context_length = 2048;
    model.cost.base_us = 100;
    model.cost.per_token_us = 100;
    answer_us = 10;
  }
  /// A prompt of 1500 tokens is computed and stored: 150 ms.
  RequestDoneEvent fill() {
    auto sim = start();
    const RequestDoneEvent cold = run(*sim, make_request(1, 1500, 4));
    sim->check_all_ended();
    return cold;
  }
};

}  // namespace

TEST_CASE("loading while computing is chosen by measured rates, and is faster than either") {
  BesideSetup setup;
  constexpr int32_t kPrompts = 9;
  for (int32_t i = 0; i < kPrompts; ++i) {
    auto sim = setup.start();
    run(*sim, make_request(1, 1500, 1, i));
  }
  struct Case {
    double us_per_byte;
    bool both;
  };
  // Computing takes 0.024 us per byte of KV.
  for (const Case& c : {Case{0.0005, false}, {0.024, true}, {2.4, false}}) {
    CAPTURE(c.us_per_byte);
    setup.us_per_byte = c.us_per_byte;
    double ttft_us[2] = {};
    bool both = false;
    for (const RestoreOverlap overlap : {RestoreOverlap::kByRates, RestoreOverlap::kNever}) {
      if (overlap == RestoreOverlap::kNever && !c.both) continue;
      setup.config.restore_overlap = overlap;
      auto sim = setup.start();
      sim->engine().warm_up();
      // The rates are learned during the run.
      for (int32_t i = 0; i < kPrompts; ++i) {
        const auto id = static_cast<RequestId>(i + 1);
        const RequestDoneEvent done = run(*sim, make_request(id, 1500, 1, i));
        ttft_us[overlap == RestoreOverlap::kNever] = static_cast<double>(done.ttft_us);
        both = done.miss == MissReason::kOverlapped;
        if (both) {
          CHECK(done.cached_disk_tokens == done.cached_tokens);
          CHECK(done.cached_tokens > 300);
          CHECK(done.cached_tokens < 1200);
          CHECK(done.missed_from == 0);
          CHECK((done.saved_us == 0 || done.saved_us > 30'000));  // 0: not measured so far
        }
        CHECK((both && overlap == RestoreOverlap::kNever) == false);
        if (overlap == RestoreOverlap::kByRates && i + 1 == kPrompts) CHECK(both == c.both);
      }
      sim->check_all_ended();
    }
    if (c.both) CHECK(ttft_us[0] < 0.7 * ttft_us[1]);
  }
}

TEST_CASE("computed and loaded parts meet, to the token, with any layer groups") {
  for (const std::vector<int32_t>& windows :
       {std::vector<int32_t>{0}, {0, 40}, {24}, {40, 0, 300}}) {
    for (const double us_per_byte : {0.0005, 0.024, 0.06}) {
      CAPTURE(windows.size());
      CAPTURE(us_per_byte);
      BesideSetup setup;
      setup.model.windows = windows;
      setup.config.kv_bytes = 48 << 20;  // a sliding group holds two windows and a step's tokens
      const RequestDoneEvent cold = setup.fill();
      setup.us_per_byte = us_per_byte;
      setup.config.restore_overlap = RestoreOverlap::kAlways;
      auto sim = setup.start();
      sim->engine().warm_up();
      const RequestDoneEvent warm = run(*sim, make_request(1, 1500, 4));
      CHECK(warm.cached_disk_tokens > (us_per_byte > 0.05 ? 100 : 300));
      CHECK(warm.ttft_us < cold.ttft_us * 11 / 10);
      const EngineSnapshot after = sim->engine().snapshot();
      CHECK(after.prompt_tokens_restored == static_cast<uint64_t>(warm.cached_disk_tokens));
      // All of it is in memory then, the computed part and the loaded one.
      const RequestDoneEvent hot = run(*sim, make_request(2, 1500, 4));
      CHECK(hot.cached_tokens == 1488);
      CHECK(hot.cached_disk_tokens == 0);
      sim->check_all_ended();
    }
  }
}

TEST_CASE("parts that fail to load, or load too late, are computed, and loaded ones are used") {
  struct Case {
    int fails_at;  ///< this load fails
    int64_t answer_us;
  };
  for (const Case& c : {Case{0, 10}, {1, 10}, {3, 10}, {-1, 10'000'000}}) {
    CAPTURE(c.fails_at);
    BesideSetup setup;
    const RequestDoneEvent cold = setup.fill();
    setup.us_per_byte = 0.005;
    setup.config.restore_overlap = RestoreOverlap::kAlways;
    auto loads = std::make_shared<int>(0);
    setup.faults.load_fails = [loads, c] { return (*loads)++ == c.fails_at; };
    auto sim = setup.start();
    sim->engine().warm_up();
    // The lookup is answered at once; after that the store may be slow.
    sim->submit(make_request(1, 1500, 4));
    while (!sim->record(1).started) sim->step();
    sim->set_store_answer_us(c.answer_us);
    sim->run_until_idle();
    const RequestDoneEvent done = *sim->record(1).done;
    sim->check_all_ended();
    CHECK(done.ttft_us < cold.ttft_us * 11 / 10);
    CHECK((done.cached_disk_tokens > 0) == (c.fails_at > 0));
    CHECK((done.miss == MissReason::kOverlapped) == (c.fails_at > 0));
    const RequestDoneEvent hot = run(*sim, make_request(2, 1500, 4));
    CHECK(hot.cached_tokens == 1488);
  }
}

TEST_CASE("cancelled, preempted and passed over while its end is loaded") {
  BesideSetup setup;
  setup.fill();
  setup.us_per_byte = 0.024;
  setup.config.restore_overlap = RestoreOverlap::kAlways;
  setup.config.scheduler.max_seqs = 1;
  SUBCASE("cancelled") {
    auto sim = setup.start();
    sim->submit(make_request(1, 1500, 4));
    while (!sim->record(1).started) REQUIRE(sim->step());
    for (int steps = 0; steps < 12; ++steps) sim->step();
    sim->record(1).cancelled = true;
    sim->post(CancelRequest{1});
    sim->run_until_idle();
    sim->check_all_ended();
  }
  SUBCASE("preempted") {
    auto sim = setup.start();
    Request low = make_request(1, 1500, 4);
    low.priority = Priority::kBatch;
    sim->submit(low);
    while (!sim->record(1).started) REQUIRE(sim->step());
    for (int steps = 0; steps < 12; ++steps) sim->step();
    Request high = make_request(2, 20, 20, 40);
    high.priority = Priority::kInteractive;
    sim->submit(high);
    sim->run_until_idle();
    sim->check_all_ended();
    CHECK(sim->record(1).done->preemptions == 1);
  }
  SUBCASE("passed over: all of it is loaded meanwhile") {
    auto sim = setup.start();
    sim->submit(make_request(2, 20, 400, 40));
    for (int steps = 0; steps < 20; ++steps) sim->step();
    sim->submit(make_request(1, 1500, 4));
    sim->run_until_idle();
    sim->check_all_ended();
    CHECK(sim->record(1).done->cached_disk_tokens == 1488);
  }
}

TEST_CASE("when blocks run out, blocks loaded ahead are freed before a request is preempted") {
  BesideSetup setup;
  setup.fill();
  setup.us_per_byte = 0.005;
  setup.config.restore_overlap = RestoreOverlap::kAlways;
  setup.config.scheduler.max_seqs = 3;
  // Room for one such prompt and little more.
  setup.config.kv_bytes = 6600 << 10;
  auto sim = setup.start();
  sim->submit(make_request(2, 60, 100, 40));
  sim->submit(make_request(1, 1500, 4));
  sim->submit(make_request(3, 70, 100, 50));
  sim->run_until_idle();
  sim->check_all_ended();
}

TEST_CASE("any mixture of requests, restarts, faults and evictions gives the right tokens") {
  const int rounds = full_counts() ? 400 : 24;
  int64_t restored = 0;
  int64_t overlapped = 0;
  for (int round = 0; round < rounds; ++round) {
    CAPTURE(round);
    std::mt19937 random(static_cast<uint32_t>(round) + 1);
    const auto below = [&](int32_t n) {
      return static_cast<int32_t>(random() % static_cast<uint32_t>(n));
    };
    Setup setup;
    const std::vector<std::vector<int32_t>> kinds = {
        {0}, {0, 40}, {24}, {20, 0}, {0, 0}, {0, kRecurrent}, {kRecurrent}, {0, 40, kRecurrent}};
    setup.model.windows = kinds[static_cast<size_t>(below(8))];
    setup.config.scheduler.max_step_tokens = 16 + below(200);
    setup.config.scheduler.max_seqs = 1 + below(6);
    // Pools that hold one context, or little more: restored blocks are evicted while requests want
    // them.
    setup.config.kv_bytes =
        static_cast<uint64_t>(36 + below(60)) * 512 * setup.model.windows.size() * 2;
    setup.config.always_restore = below(2) == 0;
    setup.config.restore_overlap = static_cast<RestoreOverlap>(below(3));
    if (below(6) == 0) {  // chunks of 256 tokens
      setup.model.num_layers = 256;
      setup.config.kv_bytes *= 128;
    }
    setup.answer_us = 1 + below(below(2) == 0 ? 20 : 20'000);
    setup.us_per_byte = below(2) == 0 ? 0 : below(20);
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
        if (!record.done) continue;
        restored += record.done->cached_disk_tokens;
        overlapped += record.done->miss == MissReason::kOverlapped ? 1 : 0;
      }
    }
  }
  CHECK(restored > 100 * rounds);
  CHECK(overlapped > rounds / 8);
}

}  // namespace hearth::tests
