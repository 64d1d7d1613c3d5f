// The whole engine under random load, from a seed: arrivals, owners, classes, samples, cancels,
// deadlines, resumes, shared prefixes, tiny pools, every policy and chunk size. After each step the
// block counts must be consistent; at the end each request has emitted exactly its expected tokens,
// once, and no block is in use.

#include "random_load.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "engine/speculation/replay_proposer.h"
#include "simulation.h"
#include "tests/skip.h"

namespace hearth::tests {
namespace {

using namespace engine;

/// To one request in three: what its first sample will be, with one token in ten replaced.
void add_prediction(uint64_t seed, const FakeModelConfig& model, Request& request) {
  RandomLoad load(seed + 3'000'000'019);
  if (!load.chance(0.3)) return;
  request.prediction = expected_tokens(model, request, 0).tokens;
  for (int32_t& token : request.prediction) {
    if (load.chance(0.1)) token = load.pick(0, model.vocab_size - 1);
  }
}

/// As if a worker had died in between: some of its tokens were sent before.
void add_resume(RandomLoad& load, const FakeModelConfig& model, Request& request) {
  for (int32_t sample = 0; sample < request.n; ++sample) {
    std::vector<int32_t> sent = expected_tokens(model, request, sample).tokens;
    sent.resize(static_cast<size_t>(load.pick(0, static_cast<int32_t>(sent.size()))));
    request.resume.push_back(std::move(sent));
  }
}

/// What a run has covered, so that the test cannot become empty unnoticed.
struct Met {
  int requests = 0, refused = 0, cancelled = 0;
  uint64_t preemptions = 0, cached_tokens = 0, tokens = 0, forked = 0;
  uint64_t drafted = 0, accepted = 0;
  /// Of models with a state.
  uint64_t state_seeds = 0, state_cached_tokens = 0, state_accepted = 0, state_preemptions = 0;
  void count_states(const EngineSnapshot& snapshot) {
    state_seeds += 1;
    state_cached_tokens += snapshot.prompt_tokens_cached;
    state_accepted += snapshot.speculation.accepted_tokens;
    state_preemptions += snapshot.preemptions_total;
  }
  uint64_t bounded_seeds = 0, stalled_steps = 0, times_backed = 0, times_given_back = 0;
};

/// Bounds on the pools' memory that come and go, and a device that is out of memory at times.
class RandomBounds {
 public:
  RandomBounds(uint64_t seed, Simulation& sim)
      : load_(seed + 4'000'000'007), on_(load_.chance(0.5)), sim_(sim) {}

  /// Before each step.
  void change(Met& met) {
    if (!on_) return;
    met.stalled_steps += sim_.engine().snapshot().kv_stalled ? 1 : 0;
    const uint64_t reserved = sim_.engine().snapshot().kv_reserved_bytes;
    if (load_.chance(0.05)) sim_.post(KvBound{reserved * load_.pick(0, 4) / 4});
    if (load_.chance(0.05)) sim_.device().backed_limit = reserved * load_.pick(0, 4) / 4;
    // A request that waits for memory gets some.
    if (sim_.engine().snapshot().kv_stalled && load_.chance(0.3)) lift();
    if (load_.chance(0.02)) sim_.clock().advance_us(3'000'000);
  }
  /// Runs until idle, and until unused memory has been given back.
  void end(Met& met) {
    lift();
    sim_.run_until_idle();
    sim_.clock().advance_us(3'000'000);
    sim_.step();
    CHECK(sim_.engine().snapshot().kv_backed_bytes == sim_.device().backed);
    met.bounded_seeds += on_ ? 1 : 0;
    met.times_backed += sim_.device().times_backed;
    met.times_given_back += sim_.device().times_given_back;
  }
  void lift() {
    sim_.device().backed_limit = UINT64_MAX;
    sim_.post(KvBound{UINT64_MAX});
  }

 private:
  RandomLoad load_;
  const bool on_;
  Simulation& sim_;
};

void run_seed(uint64_t seed, Met& met) {
  CAPTURE(seed);
  RandomLoad load(seed);
  EngineConfig config = load.engine_config();
  FakeModelConfig model = load.model_config();
  RandomLoad(seed + 2'000'000'011).add_states(model);
  model.late = seed % 4 == 3;
  const bool has_states = model.windows.back() == kRecurrent;
  // From just enough for one request to plenty.
  const int64_t block_bytes = 2 * 16 * config.block_size;
  const int64_t blocks_of_one = (256 + config.block_size - 1) / config.block_size;
  config.kv_bytes = static_cast<uint64_t>(static_cast<double>(block_bytes * blocks_of_one) *
                                          static_cast<double>(model.windows.size()) *
                                          load.one_of({0.75, 1.0, 1.5, 4.0}));
  RandomLoad choices(seed + 1'000'000'007);
  config.speculation = choices.speculation_config();
  auto replay = std::make_unique<ReplayProposer>(
      ReplayProposer::random_pattern(choices.one_of({0.0, 0.5, 0.8, 1.0}), 97, seed),
      model.vocab_size);
  ReplayProposer& knows = *replay;
  const bool drafts = choices.chance(0.3) && !has_states;
  const bool replays = !drafts && choices.chance(0.7);
  // A draft that gives the same tokens for the same input, with its own pools and too few blocks.
  FakeModelConfig draft = model;
  if (choices.chance(0.3)) draft.context_length = choices.pick(40, 256);
  config.speculation.draft_kv_bytes =
      static_cast<uint64_t>(static_cast<double>(config.kv_bytes) * choices.one_of({0.5, 1.0, 4.0}));
  auto sim_holder =
      drafts ? std::make_unique<Simulation>(config, model, draft)
             : std::make_unique<Simulation>(config, model, replays ? std::move(replay) : nullptr);
  Simulation& sim = *sim_holder;

  RandomBounds bounds(seed, sim);
  const int num_requests = load.pick(2, 10);
  int submitted = 0;
  std::vector<RequestId> live;
  while (submitted < num_requests || !live.empty()) {
    if (submitted < num_requests && (live.empty() || load.chance(0.3))) {
      Request request = load.request(static_cast<RequestId>(++submitted));
      if (load.chance(0.1)) add_resume(load, model, request);
      if (load.chance(0.05)) request.deadline_us = sim.clock().now_us() + load.pick(1, 60'000);
      request.speculate = choices.chance(0.9);
      add_prediction(seed + submitted, model, request);
      for (int32_t sample = 0; replays && sample < request.n; ++sample) {
        knows.know(request.id, sample, expected_tokens(model, request, sample).tokens);
      }
      sim.submit(request);
      sim.record(request.id).cancelled = request.deadline_us > 0;
      live.push_back(request.id);
    }
    if (!live.empty() && load.chance(0.02)) {
      const RequestId id =
          live[static_cast<size_t>(load.pick(0, static_cast<int32_t>(live.size()) - 1))];
      sim.record(id).cancelled = true;
      if (load.chance(0.5)) {
        sim.post(CancelRequest{id});
      } else {
        sim.post(FinishSample{id, load.pick(0, 3)});
      }
    }
    bounds.change(met);
    sim.step();
    std::erase_if(live, [&](RequestId id) { return sim.record(id).final_events > 0; });
    REQUIRE(sim.engine().snapshot().num_steps < 20'000);  // nothing starves
  }
  bounds.end(met);
  sim.check_all_ended();
  const EngineSnapshot snapshot = sim.engine().snapshot();
  if (has_states) met.count_states(snapshot);
  met.preemptions += snapshot.preemptions_total;
  met.cached_tokens += snapshot.prompt_tokens_cached;
  met.drafted += snapshot.speculation.drafted_tokens;
  met.accepted += snapshot.speculation.accepted_tokens;
  for (const auto& [id, record] : sim.records()) {
    ++met.requests;
    met.refused += record.error.has_value() ? 1 : 0;
    met.cancelled += record.cancelled ? 1 : 0;
    for (const auto& tokens : record.tokens) met.tokens += tokens.size();
    met.forked += record.request.n > 1 && !record.tokens.back().empty() ? 1 : 0;
  }
}

TEST_CASE("random load gives the right tokens, whatever happens") {
  const int seeds = (full_counts() ? 10'000 : 2'000) / kSlowdown;
  Met met;
  for (int seed = 1; seed <= seeds; ++seed) run_seed(static_cast<uint64_t>(seed), met);
  if (const uint64_t night = night_seed(); night != 0) {
    const auto more = static_cast<uint64_t>(seeds) / 4;
    MESSAGE("seeds " << night << " to " << night + more - 1);
    Met of_night;
    for (uint64_t seed = night; seed < night + more; ++seed) run_seed(seed, of_night);
    CHECK(of_night.requests >= 5 * more);
  }
  const auto count = static_cast<uint64_t>(seeds);
  CHECK(met.requests >= 5 * seeds);
  CHECK(met.refused < met.requests / 4);
  CHECK(met.cancelled > seeds / 10);
  CHECK(met.tokens > 30 * count);
  CHECK(met.preemptions > count / 4);
  CHECK(met.cached_tokens > 12 * count);
  CHECK(met.forked > count / 4);
  CHECK(met.drafted > 10 * count);
  CHECK(met.accepted > 5 * count);
  CHECK(met.accepted < met.drafted);
  CHECK(met.state_seeds > count / 4);
  CHECK(met.state_cached_tokens > 8 * met.state_seeds);
  CHECK(met.state_accepted > 3 * met.state_seeds);
  CHECK(met.state_preemptions > met.state_seeds / 4);
  CHECK(met.bounded_seeds > count / 3);
  CHECK(met.stalled_steps > count / 10);
  CHECK(met.times_backed > 2 * count);
  CHECK(met.times_given_back > count / 4);
  MESSAGE(met.requests << " requests, " << met.refused << " refused, " << met.cancelled
                       << " ended early, " << met.tokens << " tokens, " << met.preemptions
                       << " preemptions, " << met.cached_tokens << " cached tokens, " << met.forked
                       << " forked, " << met.times_given_back << " extents given back, "
                       << met.drafted << " drafted, " << met.accepted << " accepted");
}

}  // namespace
}  // namespace hearth::tests
