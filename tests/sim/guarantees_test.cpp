// hearth's guarantees about blocks, gaps, cancels and fairness, on a fake clock with the costs of a
// 7B model on a desktop CPU.

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "simulation.h"

namespace hearth::tests {
namespace {

using namespace engine;

/// 40 ms to read the weights, 2.5 ms per row, attention of half a microsecond per position.
constexpr FakeCost kDesktop{40'000, 2'500, 0.5};
/// A small model on the same device, and a large one on a slow device.
constexpr FakeCost kCosts[] = {{5'000, 300, 0.05}, kDesktop, {60'000, 20'000, 2}};

FakeModelConfig long_context() {
  FakeModelConfig model;
  model.context_length = 8192;
  model.num_layers = 1;
  return model;
}

EngineConfig roomy() {
  EngineConfig config;
  config.kv_bytes = 1 << 20;  // 4096 blocks of the model below
  return config;
}

int32_t blocks_used(Simulation& sim) { return sim.engine().snapshot().kv_blocks_used.front(); }

bool has_tokens(Simulation& sim, RequestId id, size_t count = 1) {
  const auto& tokens = sim.record(id).tokens;
  return std::ranges::all_of(tokens, [&](const auto& t) { return t.size() >= count; });
}

/// Random ids, so that nothing is shared by accident.
Request random_request(RequestId id, int32_t prompt_size, int32_t max_tokens) {
  Request request = make_request(id, 0, max_tokens);
  std::mt19937_64 random(id);
  for (int32_t i = 0; i < prompt_size; ++i) {
    request.prompt.push_back(static_cast<int32_t>(random() % 61));
  }
  return request;
}

TEST_CASE("two prompts sharing 1000 tokens hold those blocks once") {
  constexpr int32_t kShared = 1000, kOwn = 50, kFullShared = kShared / 16;
  for (const bool at_once : {false, true}) {
    CAPTURE(at_once);
    Simulation sim(roomy(), long_context());
    Request a = random_request(1, kShared + kOwn, 40);
    Request b = random_request(2, kShared + kOwn, 40);
    std::copy_n(a.prompt.begin(), kShared, b.prompt.begin());
    sim.submit(a);
    while (!at_once && !has_tokens(sim, 1, 2)) sim.step();
    sim.submit(b);
    while (!has_tokens(sim, 1, 3) || !has_tokens(sim, 2, 3)) sim.step();
    int32_t separate = 0;
    for (const RequestId id : {1, 2}) {
      const auto stored =
          static_cast<int32_t>(kShared + kOwn + sim.record(id).tokens[0].size()) - 1;
      separate += (stored + 15) / 16;
    }
    CHECK(blocks_used(sim) == separate - kFullShared);
    CHECK(sim.record(2).done.has_value() == false);
    sim.run_until_idle();
    sim.check_all_ended();
    CHECK(sim.record(2).done->cached_tokens == kFullShared * 16);
    // Ended sequences stay cached: the same prompt is found, except for its last block.
    Request again = a;
    again.id = 3;
    sim.submit(again);
    sim.run_until_idle();
    CHECK(sim.record(3).done->cached_tokens == (kShared + kOwn - 1) / 16 * 16);
  }
}

TEST_CASE("samples of one request share the prompt's blocks, and only the partial one is copied") {
  Simulation sim(roomy(), long_context());
  Request request = random_request(1, 100, 30);  // 6 full blocks and 4 tokens
  request.n = 4;
  request.sampling.temperature = 1;
  int64_t rows = 0;
  sim.model().before_step = [&](const models::StepArgs& args) { rows += args.batch->num_tokens; };
  sim.submit(request);
  while (!has_tokens(sim, 1, 2)) sim.step();
  CHECK(blocks_used(sim) == 6 + 4);
  CHECK(rows == 100 + 4);  // the prompt once, then one row per sample
  sim.run_until_idle();
  sim.check_all_ended();
  const auto& tokens = sim.record(1).tokens;
  CHECK(tokens[0] != tokens[1]);
}

TEST_CASE("64 sequences of mean length 400 waste at most 2.5 % of KV bytes") {
  EngineConfig config = roomy();
  config.scheduler.max_seqs = 64;
  Simulation sim(config, long_context());
  std::mt19937_64 random(1);
  std::vector<int32_t> lengths;
  for (int i = 0; i < 32; ++i) {
    const auto off = static_cast<int32_t>(random() % 300);
    lengths.push_back(400 - off);
    lengths.push_back(400 + off);
  }
  CHECK(std::accumulate(lengths.begin(), lengths.end(), 0) == 64 * 400);
  // Each is `length` tokens long when the last has its first token.
  for (size_t i = 0; i < lengths.size(); ++i) {
    sim.submit(random_request(i + 1, lengths[i], 500));
  }
  const auto all_run = [&] {
    return std::ranges::all_of(
        sim.records(), [](const auto& entry) { return entry.second.tokens[0].size() >= 2; });
  };
  while (!all_run()) sim.step();
  double stored = 0;
  for (const auto& [id, record] : sim.records()) {
    stored += static_cast<double>(record.request.prompt.size() + record.tokens[0].size() - 1);
  }
  const double held = 16.0 * blocks_used(sim);
  const double waste = (held - stored) / held;
  MESSAGE("waste " << 100 * waste << " %");
  CHECK(waste >= 0);
  CHECK(waste <= 0.025);
}

/// Largest gap between successive tokens of streams 1 .. 4, after `from_us`.
int64_t worst_gap_us(Simulation& sim, int64_t from_us) {
  int64_t worst = 0;
  for (RequestId id = 1; id <= 4; ++id) {
    const std::vector<int64_t>& times = sim.record(id).times_us[0];
    for (size_t i = 1; i < times.size(); ++i) {
      if (times[i - 1] >= from_us) worst = std::max(worst, times[i] - times[i - 1]);
    }
  }
  return worst;
}

/// Four streams and then a prompt of 4000 tokens.
struct PromptNextToStreams {
  explicit PromptNextToStreams(const FakeModelConfig& model, std::vector<KeptPrefix> kept = {})
      : sim(roomy(), model) {
    for (RequestId id = 1; id <= 4; ++id) sim.submit(random_request(id, 100, 5000));
    for (RequestId id = 1; id <= 4; ++id) {
      while (!has_tokens(sim, id, 30)) sim.step();
    }
    const int64_t before = sim.clock().now_us();
    plain_gap_us = worst_gap_us(sim, sim.record(4).times_us[0][5]);
    prompt = random_request(5, 4000, 1);
    prompt.kept = std::move(kept);
    sim.submit(prompt);
    while (!sim.record(5).done.has_value()) sim.step();
    gap_us = worst_gap_us(sim, before - plain_gap_us);
    const RequestDoneEvent& done = *sim.record(5).done;
    prefill_us = done.prefill_us;
    MESSAGE("plain " << plain_gap_us / 1000 << " ms, worst " << gap_us / 1000 << " ms, TTFT "
                     << done.ttft_us / 1000 << " ms");
  }

  Simulation sim;
  Request prompt;
  int64_t plain_gap_us = 0;  ///< the worst without the prompt, and with it
  int64_t gap_us = 0;
  int64_t prefill_us = 0;
};

TEST_CASE("while a 4000-token prompt prefills, streams keep their rate") {
  for (const FakeCost& cost : kCosts) {
    CAPTURE(cost.per_token_us);
    FakeModelConfig model = long_context();
    model.cost = cost;
    const PromptNextToStreams run(model);
    CHECK(run.gap_us <= 4 * run.plain_gap_us);
    // And the time is used: most of each step is the prompt's.
    CHECK(run.prefill_us <=
          2 * 4000 * (cost.per_token_us + cost.per_context_us * 2000) + 10 * run.plain_gap_us);
  }
}

TEST_CASE("chunks that end where a state is kept cost other streams nothing") {
  constexpr int32_t kMarks[] = {40, 300, 311, 1000, 1500, 1520, 2700, 3900};
  std::vector<KeptPrefix> kept;
  for (const int32_t mark : kMarks) kept.push_back({mark, 0});
  for (const FakeCost& cost : kCosts) {
    CAPTURE(cost.per_token_us);
    FakeModelConfig model = long_context();
    model.windows = {0, kRecurrent};
    model.cost = cost;
    const PromptNextToStreams plain(model);
    PromptNextToStreams run(model, kept);
    CHECK(run.gap_us <= plain.gap_us);
    // Each border may take the rest of one step from the prompt.
    const int64_t borders = std::ssize(kept);
    CHECK(run.prefill_us <= plain.prefill_us + borders * run.gap_us);
    RequestId id = 6;
    for (const int32_t mark : kMarks) {
      CAPTURE(mark);
      Request beginning = random_request(id, mark + 20, 1);
      std::copy_n(run.prompt.prompt.begin(), mark, beginning.prompt.begin());
      run.sim.submit(beginning);
      while (!run.sim.record(id).done.has_value()) run.sim.step();
      CHECK(run.sim.record(id).done->cached_tokens == mark / 16 * 16);
      ++id;
    }
  }
}

TEST_CASE("a cancel frees the blocks within 300 ms") {
  for (const FakeCost& cost : kCosts) {
    CAPTURE(cost.per_token_us);
    FakeModelConfig model = long_context();
    model.cost = cost;
    // At every moment of its life: posted while a step runs.
    for (int at_step = 1; at_step <= 40; at_step += 3) {
      Simulation sim(roomy(), model);
      int64_t posted_us = 0;
      int steps = 0;
      sim.model().before_step = [&](const models::StepArgs&) {
        if (++steps != at_step) return;
        posted_us = sim.clock().now_us();
        sim.record(1).cancelled = true;
        sim.post(CancelRequest{1});
      };
      sim.submit(random_request(1, 4000, 100));
      while (sim.record(1).final_events == 0) sim.step();
      sim.step();
      if (posted_us == 0) continue;
      CHECK(*sim.record(1).sample_done[0] == FinishReason::kCancelled);
      CHECK(blocks_used(sim) == 0);
      CHECK(sim.clock().now_us() - posted_us <= 300'000);
    }
  }
}

/// TTFT of owner B's request, with `backlog` requests of owner A already waiting; and the longest
/// step.
struct Ttft {
  int64_t us = 0;
  int64_t longest_step_us = 0;
};
Ttft ttft_with_others(int backlog, int32_t prompt_size) {
  FakeModelConfig model = long_context();
  model.cost = kDesktop;
  EngineConfig config = roomy();
  config.scheduler.max_seqs = 16;
  Simulation sim(config, model);
  int64_t step_began = 0;
  Ttft out;
  sim.model().before_step = [&](const models::StepArgs&) { step_began = sim.clock().now_us(); };
  sim.model().after_step = [&](const models::StepArgs&) {
    out.longest_step_us = std::max(out.longest_step_us, sim.clock().now_us() - step_began);
  };
  for (int i = 0; i < backlog; ++i) {
    Request request = random_request(static_cast<RequestId>(i + 10), 300, 100);
    request.owner = request.cache_salt = "uid:1";
    sim.submit(request);
  }
  for (int i = 0; backlog > 0 && i < 40; ++i) sim.step();
  Request request = random_request(1, prompt_size, 10);
  request.owner = request.cache_salt = "uid:2";
  request.received_us = sim.clock().now_us();
  sim.submit(request);
  while (!has_tokens(sim, 1)) sim.step();
  out.us = sim.record(1).times_us[0][0] - request.received_us;
  sim.run_until_idle();
  sim.check_all_ended();
  return out;
}

TEST_CASE("an owner with 100 requests at most doubles another owner's TTFT") {
  for (const int32_t prompt_size : {20, 300, 2000}) {
    const Ttft alone = ttft_with_others(0, prompt_size);
    const Ttft loaded = ttft_with_others(100, prompt_size);
    MESSAGE(prompt_size << " tokens: alone " << alone.us / 1000 << " ms, next to 100 requests "
                        << loaded.us / 1000 << " ms, longest step " << loaded.longest_step_us / 1000
                        << " ms");
    CHECK(loaded.us <= 2 * alone.us + loaded.longest_step_us);
  }
}

TEST_CASE("batch requests are served during a stream of interactive ones") {
  FakeModelConfig model = long_context();
  EngineConfig config = roomy();
  config.scheduler.max_seqs = 2;
  config.scheduler.aging_us = 200'000;
  Simulation sim(config, model);
  Request batch = random_request(1, 50, 20);
  batch.priority = Priority::kBatch;
  sim.submit(batch);
  RequestId next = 2;
  int live = 0;
  // Always more interactive work than memory for it, each time from another owner.
  while (sim.record(1).final_events == 0) {
    live = 0;
    for (const auto& [id, record] : sim.records()) live += record.final_events == 0 ? 1 : 0;
    for (; live < 6; ++live) {
      Request request = random_request(next, 40, 10);
      request.priority = Priority::kInteractive;
      request.owner = "uid:" + std::to_string(next++);
      sim.submit(request);
    }
    sim.step();
    REQUIRE(sim.clock().now_us() < 5'000'000);
  }
  sim.run_until_idle();
  sim.check_all_ended();
}

TEST_CASE("an interactive request preempts a batch one, which continues later") {
  EngineConfig config = roomy();
  config.scheduler.max_seqs = 1;
  config.speculation.enabled = false;  // its rows are counted
  Simulation sim(config, long_context());
  Request batch = random_request(1, 100, 200);
  batch.priority = Priority::kBatch;
  sim.submit(batch);
  while (!has_tokens(sim, 1, 50)) sim.step();
  Request urgent = random_request(2, 30, 10);
  urgent.priority = Priority::kInteractive;
  sim.submit(urgent);
  int64_t rows = 0;
  sim.model().before_step = [&](const models::StepArgs& args) { rows += args.batch->num_tokens; };
  while (sim.record(2).final_events == 0) {
    sim.step();
    REQUIRE(sim.record(1).tokens[0].size() <= 51);
  }
  sim.run_until_idle();
  sim.check_all_ended();
  CHECK(sim.record(1).done->preemptions == 1);
  // It resumed from its cached blocks: at most one block was computed again.
  CHECK(rows <= 30 + 10 + 150 + 16);
}

TEST_CASE("the static policy adds no request to a running batch") {
  EngineConfig config = roomy();
  config.scheduler.policy = SchedulerPolicy::kStatic;
  config.scheduler.max_seqs = 4;
  Simulation sim(config, long_context());
  for (RequestId id = 1; id <= 6; ++id) {
    sim.submit(random_request(id, 40, 10 * static_cast<int32_t>(id)));
  }
  while (sim.record(4).final_events == 0) {
    sim.step();
    if (sim.record(4).final_events == 0) REQUIRE_FALSE(sim.record(5).started.has_value());
  }
  CHECK(sim.record(1).final_events == 1);
  sim.run_until_idle();
  sim.check_all_ended();
}

TEST_CASE("unchunked: a prompt is one step, and waits until enough requests wait") {
  EngineConfig config = roomy();
  config.scheduler.chunked_prefill = false;
  config.scheduler.max_step_tokens = 16;
  config.scheduler.waiting_served_ratio = 0.5;
  FakeModelConfig model = long_context();
  model.context_length = 1024;
  Simulation sim(config, model);
  for (RequestId id = 1; id <= 4; ++id) sim.submit(random_request(id, 200, 500));
  sim.step();
  while (!has_tokens(sim, 4)) sim.step();
  // One waits while four run: floor(0.5 * 4) = 2 are wanted.
  int32_t largest = 0;
  sim.model().before_step = [&](const models::StepArgs& args) {
    largest = std::max(largest, args.batch->num_tokens);
  };
  sim.submit(random_request(5, 300, 10));
  for (int i = 0; i < 5; ++i) sim.step();
  CHECK_FALSE(sim.record(5).started.has_value());
  CHECK(largest == 4);
  sim.submit(random_request(6, 250, 10));
  sim.step();
  CHECK(has_tokens(sim, 5));
  CHECK(has_tokens(sim, 6));
  CHECK(largest == 550);
  // And no request waits for longer than 20 decode steps.
  sim.submit(random_request(7, 300, 10));
  for (int i = 0; i < 21; ++i) sim.step();
  CHECK(sim.record(7).started.has_value());
  sim.run_until_idle();
  sim.check_all_ended();
}

}  // namespace
}  // namespace hearth::tests
