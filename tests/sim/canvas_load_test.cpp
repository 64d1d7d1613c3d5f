// Canvases under random load, from a seed: rules, blocks and passes, owners, classes, samples,
// cancels, deadlines, resumes and bounds on memory. At the end each request has sent exactly the
// tokens of a run alone, once, and no block is in use. And what one owner's canvases cost another
// owner's.

#include <doctest/doctest.h>

#include <algorithm>

#include "random_load.h"
#include "simulation.h"
#include "tests/skip.h"

namespace hearth::tests {
namespace {

using namespace engine;
using models::Remasking;

FakeModelConfig canvas_model(int32_t context_length) {
  FakeModelConfig model;
  model.context_length = context_length;
  model.num_layers = 1;
  model.canvas.mask_token = model.vocab_size - 1;
  return model;
}

FakeModelConfig random_canvas_model(RandomLoad& load) {
  FakeModelConfig model = canvas_model(256);
  model.num_layers = 8;  // two blocks to a page, so that bounds bind
  model.canvas.shift_logits = load.chance(0.5);
  model.canvas.by_time = load.chance(0.5);
  model.canvas.tempered = load.chance(0.5);
  return model;
}

Request random_canvas(RandomLoad& load, const FakeModelConfig& model, RequestId id) {
  Request request = load.request(id);
  request.sampling.repetition_penalty = 1;
  request.sampling.prompt_logprobs = false;
  request.sampling.top_logprobs = -1;
  request.canvas = models::CanvasParams{
      .steps = load.pick(1, 20),
      .block_length = load.one_of({1, 4, 7, 64}),
      .remasking = load.one_of({Remasking::kConfidence, Remasking::kEntropy, Remasking::kMargin,
                                Remasking::kRandom, Remasking::kOrigin})};
  // As if a worker had died in between.
  for (int32_t sample = 0; load.chance(0.15) && sample < request.n; ++sample) {
    std::vector<int32_t> sent = expected_tokens(model, request, sample).tokens;
    sent.resize(static_cast<size_t>(load.pick(0, static_cast<int32_t>(sent.size()))));
    request.resume.push_back(std::move(sent));
  }
  return request;
}

/// What the runs have met, so that the test cannot become empty unnoticed.
struct CanvasesMet {
  uint64_t requests = 0, refused = 0, cancelled = 0, resumed = 0, tokens = 0, preemptions = 0,
           stalled = 0;
  uint64_t shared_steps = 0;  ///< with several canvases
};

void cancel_some(RandomLoad& load, Simulation& sim, const std::vector<RequestId>& live) {
  if (live.empty() || !load.chance(0.03)) return;
  const RequestId id =
      live[static_cast<size_t>(load.pick(0, static_cast<int32_t>(live.size()) - 1))];
  sim.record(id).cancelled = true;
  if (load.chance(0.5)) {
    sim.post(CancelRequest{id});
  } else {
    sim.post(FinishSample{id, load.pick(0, 3)});
  }
}

void run_canvases(uint64_t seed, CanvasesMet& met) {
  CAPTURE(seed);
  RandomLoad load(seed);
  const FakeModelConfig model = random_canvas_model(load);
  Simulation sim(load.engine_config(), model);
  sim.model().before_step = [&](const models::StepArgs& args) {
    met.shared_steps += args.batch->num_seqs > 1 ? 1 : 0;
  };
  const bool bounds = load.chance(0.5);
  const int num_requests = load.pick(2, 8);
  int submitted = 0;
  std::vector<RequestId> live;
  while (submitted < num_requests || !live.empty()) {
    if (submitted < num_requests && (live.empty() || load.chance(0.3))) {
      Request request = random_canvas(load, model, static_cast<RequestId>(++submitted));
      if (load.chance(0.05)) request.deadline_us = sim.clock().now_us() + load.pick(1, 60'000);
      sim.submit(request);
      sim.record(request.id).cancelled = request.deadline_us > 0;
      live.push_back(request.id);
    }
    cancel_some(load, sim, live);
    const EngineSnapshot snapshot = sim.engine().snapshot();
    met.stalled += snapshot.kv_stalled ? 1 : 0;
    if (bounds && load.chance(0.05)) {
      sim.post(KvBound{snapshot.kv_reserved_bytes * static_cast<uint64_t>(load.pick(0, 4)) / 4});
    }
    if (snapshot.kv_stalled && load.chance(0.3)) sim.post(KvBound{UINT64_MAX});
    sim.step();
    std::erase_if(live, [&](RequestId id) { return sim.record(id).final_events > 0; });
    REQUIRE(sim.engine().snapshot().num_steps < 20'000);  // nothing starves
  }
  sim.run_until_idle();
  sim.check_all_ended();
  met.preemptions += sim.engine().snapshot().preemptions_total;
  for (const auto& [id, record] : sim.records()) {
    met.refused += record.error.has_value() ? 1 : 0;
    ++met.requests;
    met.cancelled += record.cancelled ? 1 : 0;
    met.resumed += record.request.resume.empty() ? 0 : 1;
    for (const auto& tokens : record.tokens) met.tokens += tokens.size();
  }
}

TEST_CASE("canvases under random load have the tokens of a run alone, whatever happens") {
  const int seeds = (full_counts() ? 5'000 : 1'000) / kSlowdown;
  CanvasesMet met;
  for (int seed = 1; seed <= seeds; ++seed) run_canvases(static_cast<uint64_t>(seed), met);
  const auto count = static_cast<uint64_t>(seeds);
  MESSAGE(met.requests << " requests, " << met.refused << " refused, " << met.cancelled
                       << " ended early, " << met.resumed << " resumed, " << met.tokens
                       << " tokens, " << met.preemptions << " preemptions, " << met.stalled
                       << " stalled steps, " << met.shared_steps << " steps with several");
  CHECK(met.requests >= 4 * count);
  CHECK(met.refused < met.requests / 8);  // more samples than may run
  CHECK(met.cancelled > count / 10);
  CHECK(met.resumed > count / 4);
  CHECK(met.tokens > 20 * count);
  CHECK(met.preemptions > count / 10);
  CHECK(met.stalled > count / 10);
  CHECK(met.shared_steps > 2 * count);
}

/// How long owner B's canvas takes with `backlog` canvases of owner A waiting already.
struct Taken {
  int64_t us = 0;
  int64_t longest_step_us = 0;
};
Taken canvas_with_others(int backlog, const FakeCost& cost) {
  FakeModelConfig model = canvas_model(1024);
  model.cost = cost;
  EngineConfig config;
  config.scheduler.max_seqs = 16;
  Simulation sim(config, model);
  Taken out;
  int64_t step_began = 0;
  sim.model().before_step = [&](const models::StepArgs&) { step_began = sim.clock().now_us(); };
  sim.model().after_step = [&](const models::StepArgs&) {
    out.longest_step_us = std::max(out.longest_step_us, sim.clock().now_us() - step_began);
  };
  const auto canvas = [](RequestId id, const char* owner) {
    Request request = make_request(id, 40, 64);
    request.owner = request.cache_salt = owner;
    request.canvas = models::CanvasParams{.steps = 16, .block_length = 32};
    return request;
  };
  for (int i = 0; i < backlog; ++i) sim.submit(canvas(static_cast<RequestId>(i + 10), "uid:1"));
  for (int i = 0; backlog > 0 && i < 20; ++i) sim.step();
  Request request = canvas(1, "uid:2");
  request.received_us = sim.clock().now_us();
  sim.submit(request);
  while (sim.record(1).final_events == 0) sim.step();
  out.us = sim.clock().now_us() - request.received_us;
  sim.run_until_idle();
  sim.check_all_ended();
  return out;
}

TEST_CASE("an owner with 100 canvases at most doubles the time of another owner's canvas") {
  // Reading the weights, each row, each position that a row sees.
  for (const FakeCost& cost :
       {FakeCost{5'000, 300, 0.05}, FakeCost{40'000, 2'500, 0.5}, FakeCost{60'000, 20'000, 2}}) {
    const Taken alone = canvas_with_others(0, cost);
    const Taken loaded = canvas_with_others(100, cost);
    MESSAGE("alone " << alone.us / 1000 << " ms, next to 100 canvases " << loaded.us / 1000
                     << " ms, longest step " << loaded.longest_step_us / 1000 << " ms");
    CHECK(loaded.us <= 2 * alone.us + loaded.longest_step_us);
  }
}

}  // namespace
}  // namespace hearth::tests
