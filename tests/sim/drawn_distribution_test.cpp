// A request's tokens are distributed as the target's probabilities when a draft model or heads
// draft for it, with branches and without: recorded logits of a target and its draft, with the
// engine's own verification. A bias of three percent towards draft tokens is detected.

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <random>

#include "engine/sampling/sampler.h"
#include "simulation.h"
#include "tests/skip.h"
#include "tests/unit/engine/distributions.h"

namespace hearth::tests {
namespace {

using namespace engine;

constexpr int32_t kTokens = 400;  ///< of a request

using StepHook = std::function<void(const models::StepArgs&)>;

/// Each output row of the model is `row`, whatever the tokens before it.
StepHook always(const std::vector<float>& row) {
  return [row](const models::StepArgs& args) {
    for (int32_t i = 0; i < args.batch->num_outputs; ++i) {
      std::ranges::copy(row, args.logits.row<float>(i));
    }
  };
}

/// What drafts, and how many branches there are at each place.
struct Drafts {
  bool heads = false;
  int32_t rivals = 0;
};

std::unique_ptr<Simulation> simulation(const Drafts& drafts, const Rows& rows) {
  FakeModelConfig model;
  model.vocab_size = kVocab;
  model.num_layers = 1;
  model.windows = {8};  // less to hash
  EngineConfig config;
  config.speculation.lookup = false;
  config.speculation.fixed_width = 3;
  config.speculation.max_rivals = drafts.rivals;
  FakeModelConfig target = model;
  target.drafts = drafts.heads;
  target.draft_heads = drafts.heads ? 4 : 0;
  auto sim = drafts.heads ? std::make_unique<Simulation>(config, target)
                          : std::make_unique<Simulation>(config, target, model);
  sim->model().after_step = always(rows.target);
  (drafts.heads ? sim->model().after_draft : sim->draft().after_step) = always(rows.draft);
  return sim;
}

/// The frequencies of so many tokens, of `together` requests at a time.
std::map<int32_t, int64_t> drawn(Simulation& sim, const SamplingParams& params, uint64_t seed,
                                 int64_t draws, int64_t together) {
  for (int64_t i = 0; i < draws / kTokens; ++i) {
    const auto id = static_cast<RequestId>(i + 1);
    Request request = make_request(id, 4, kTokens);
    request.use_prefix_cache = false;
    request.sampling = params;
    request.sampling.seed = seed + id;
    sim.submit(request);
    if (i % together == together - 1) sim.run_until_idle();
  }
  sim.run_until_idle();
  std::map<int32_t, int64_t> seen;
  for (const auto& [id, record] : sim.records()) {
    REQUIRE(record.tokens.front().size() == kTokens);
    for (const int32_t token : record.tokens.front()) ++seen[token];
  }
  return seen;
}

std::vector<TokenProbability> probabilities(const std::vector<float>& logits,
                                            const SamplingParams& params) {
  SampleArgs args;
  args.params = &params;
  std::vector<TokenProbability> out;
  std::vector<float> row = logits;
  REQUIRE(Sampler(kVocab).probabilities(row, args, &out).ok());
  return out;
}

TEST_CASE("seeds of all kinds with a draft model and heads: distributed as the target") {
  const int64_t draws = full_counts() ? 200'000 : 4'000;
  std::map<bool, uint64_t> accepted_in_chains;
  for (const Drafts& drafts : {Drafts{false, 0}, {true, 0}, {false, 2}, {true, 2}}) {
    CAPTURE(drafts.heads);
    CAPTURE(drafts.rivals);
    uint64_t accepted = 0;
    uint32_t number = 1;
    for (const SamplingParams& params : settings()) {
      CAPTURE(number);
      const Rows rows = rows_of(number);
      const auto sim = simulation(drafts, rows);
      const auto seen = drawn(*sim, params, number * 100'000, draws, 4);
      CHECK(p_value(probabilities(rows.target, params), seen, draws) > 1e-4);
      const SpeculationCounts counts = sim->engine().snapshot().speculation;
      CHECK(counts.drafted_tokens > static_cast<uint64_t>(draws) / 2);
      const auto by = drafts.heads ? DraftedBy::kDraftHeads : DraftedBy::kDraftModel;
      CHECK(counts.drafted_by[static_cast<size_t>(by)] == counts.drafted_tokens);
      accepted += counts.accepted_tokens;
      ++number;
    }
    CHECK(accepted > static_cast<uint64_t>(draws));
    // Branches are taken.
    if (drafts.rivals == 0) accepted_in_chains[drafts.heads] = accepted;
    if (drafts.rivals > 0) CHECK(20 * accepted > 21 * accepted_in_chains[drafts.heads]);
  }
}

/// Of a step of one sequence: `bias` of the rows before a draft token, or before a rival, become
/// certain of it.
StepHook biased(const std::vector<float>& row, double bias, bool rivals) {
  return [row, bias, rivals,
          random = std::make_shared<std::mt19937_64>(8)](const models::StepArgs& args) {
    always(row)(args);
    const kernels::BatchIndex& batch = *args.batch;
    for (int32_t i = 0; i < batch.num_outputs; ++i) {
      const int32_t before = batch.output_rows[i];
      if (batch.seq_idx[before] > 0) continue;  // in a branch
      for (int32_t next = before + 1; next < batch.num_tokens; ++next) {
        const int32_t branch = batch.seq_idx[next];
        const bool begins = branch > 0 && batch.query_start[branch] == next;
        if (batch.positions[next] != batch.positions[before] + 1) continue;
        if (rivals ? !begins : branch > 0) continue;
        if (static_cast<double>((*random)() >> 11) * 0x1p-53 < bias) {
          args.logits.row<float>(i)[batch.token_ids[next]] = 1000.0f;
        }
      }
    }
  };
}

TEST_CASE("three percent too many acceptances are detected, in chains and in branches") {
  const int64_t draws = full_counts() ? 200'000 : 60'000;
  const SamplingParams params = settings()[4];
  Rows rows = rows_of(2);
  const std::vector<TokenProbability> want = probabilities(rows.target, params);
  // The two likeliest tokens are always the draft and its rival, so that their frequencies show
  // every acceptance.
  std::vector<TokenProbability> best = want;
  std::ranges::sort(best, std::greater(), &TokenProbability::probability);
  rows.draft.assign(kVocab, 0.0f);
  rows.draft[static_cast<size_t>(best[0].token)] = 2000.0f;
  rows.draft[static_cast<size_t>(best[1].token)] = 1000.0f;
  for (const bool heads : {false, true}) {
    for (const bool rivals : {false, true}) {
      for (const double bias : {0.0, 0.03}) {
        CAPTURE(heads);
        CAPTURE(rivals);
        CAPTURE(bias);
        const auto sim = simulation({heads, rivals ? 1 : 0}, rows);
        sim->model().after_step = biased(rows.target, bias, rivals);
        const double p = p_value(want, drawn(*sim, params, 300'000, draws, 1), draws);
        CAPTURE(p);
        CHECK((bias > 0 ? p < 1e-6 : p > 1e-4));
      }
    }
  }
}

}  // namespace
}  // namespace hearth::tests
