// A request's tokens are distributed as the target's probabilities when a draft model drafts for
// it: recorded logits of a target and its draft, with the engine's own verification.

#include <doctest/doctest.h>

#include <algorithm>
#include <map>

#include "engine/sampling/sampler.h"
#include "simulation.h"
#include "tests/skip.h"
#include "tests/unit/engine/distributions.h"

namespace hearth::tests {
namespace {

using namespace engine;

constexpr int32_t kTokens = 400;  ///< of a request

/// Each output row of the model is `row`, whatever the tokens before it.
void always(FakeModel& model, const std::vector<float>& row) {
  model.after_step = [row](const models::StepArgs& args) {
    for (int32_t i = 0; i < args.batch->num_outputs; ++i) {
      std::ranges::copy(row, args.logits.row<float>(i));
    }
  };
}

TEST_CASE("seeds of all kinds with a draft model: distributed as the target") {
  FakeModelConfig model;
  model.vocab_size = kVocab;
  model.num_layers = 1;
  model.windows = {8};  // less to hash
  const int64_t draws = full_counts() ? 200'000 : 4'000;
  Sampler sampler(kVocab);
  uint32_t number = 1;
  uint64_t accepted = 0;
  for (const SamplingParams& params : settings()) {
    CAPTURE(number);
    Rows rows = rows_of(number);
    EngineConfig config;
    config.speculation.lookup = false;
    config.speculation.fixed_width = 3;
    Simulation sim(config, model, model);
    always(sim.model(), rows.target);
    always(sim.draft(), rows.draft);
    std::map<int32_t, int64_t> seen;
    for (int64_t i = 0; i < draws / kTokens; ++i) {
      const auto id = static_cast<RequestId>(i + 1);
      Request request = make_request(id, 4, kTokens);
      request.use_prefix_cache = false;
      request.sampling = params;
      request.sampling.seed = number * 100'000 + id;
      sim.submit(request);
      if (i % 4 == 3) sim.run_until_idle();
    }
    sim.run_until_idle();
    for (const auto& [id, record] : sim.records()) {
      REQUIRE(record.tokens.front().size() == kTokens);
      for (const int32_t token : record.tokens.front()) ++seen[token];
    }
    SampleArgs args;
    args.params = &params;
    std::vector<TokenProbability> want;
    REQUIRE(sampler.probabilities(rows.target, args, &want).ok());
    CHECK(p_value(want, seen, draws) > 1e-4);
    const SpeculationCounts counts = sim.engine().snapshot().speculation;
    CHECK(counts.drafted_tokens > static_cast<uint64_t>(draws) / 2);
    accepted += counts.accepted_tokens;
    ++number;
  }
  CHECK(accepted > static_cast<uint64_t>(draws));
}

}  // namespace
}  // namespace hearth::tests
