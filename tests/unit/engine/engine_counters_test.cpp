#include "engine/loop/engine_counters.h"

#include <doctest/doctest.h>

namespace hearth::engine {
namespace {

/// A step of two sequences that decode, with three draft tokens and ten prompt tokens.
StepPlan mixed_step() {
  StepPlan plan;
  plan.num_decode_rows = 2;
  plan.num_drafted = 3;
  plan.num_tokens = 2 + 3 + 10;
  return plan;
}

TEST_CASE("accepted draft tokens count once: for the request, the step and the engine") {
  const StepCost cost;
  EngineCounters counters;
  RequestStats first, second;
  const StepPlan plan = mixed_step();
  counters.add_draft_us(500);
  counters.step_computed(plan, cost, 10'000);
  counters.verified(first, {5, 3}, 2, 3, DraftedBy::kLookup);
  counters.verified(second, {}, 0, 1, DraftedBy::kLookup);
  CHECK(counters.accepted_in_step() == 2);
  counters.step_done(plan, false, 0, 10'000);

  const EngineSnapshot snapshot = counters.snapshot(10'000);
  CHECK(snapshot.num_steps == 1);
  CHECK(snapshot.num_steps_ahead == 0);
  CHECK(snapshot.prefill_tokens_total == 10);
  CHECK(snapshot.decode_tokens_total == 4);
  CHECK(snapshot.speculation.verifications == 1);
  CHECK(snapshot.speculation.drafted_tokens == 5);  // three places, two of them with a rival
  CHECK(snapshot.speculation.accepted_tokens == 2);
  CHECK(first.speculation.accepted_tokens == 2);
  CHECK(first.speculation.accepted_at[1] == 1);
  CHECK(first.speculation.accepted_at[2] == 0);
  CHECK(second.speculation.verifications == 0);

  // Prompt rows ran in the same step, so its cost is taken from the model of decode rows.
  const double plain_us = cost.rows_us(2);
  const double drafted_us = 500 + cost.rows_us(5);
  CHECK(first.speculation.saved_us == doctest::Approx(3 * plain_us - drafted_us));
  CHECK(second.speculation.saved_us == doctest::Approx(plain_us - drafted_us));
  CHECK(snapshot.speculation.saved_us == doctest::Approx(2 * plain_us - drafted_us));

  // The next step begins without accepted tokens, and drafting is charged only once.
  counters.step_computed(plan, cost, 10'000);
  CHECK(counters.accepted_in_step() == 0);
  counters.verified(second, {3, 3}, 0, 1, DraftedBy::kDraftLayer);
  CHECK(second.speculation.saved_us ==
        doctest::Approx(2 * plain_us - drafted_us - cost.rows_us(5)));
}

TEST_CASE("the times of requests are averaged once one has ended") {
  EngineCounters counters;
  CHECK(counters.service_us() == 0);
  RequestStats never_started;
  counters.request_done(never_started, 5'000);
  CHECK(counters.service_us() == 0);
  RequestStats stats;
  stats.started_us = 1'000;
  counters.request_done(stats, 5'000);
  CHECK(counters.service_us() == 4'000);
  counters.request_done(stats, 9'000);
  CHECK(counters.service_us() == 5'000);
}

TEST_CASE("a request's statistics separate sample 0 from the others") {
  RequestStats stats;
  stats.count_token(1, 100);
  stats.count_token(0, 200);
  stats.count_token(0, 300);
  CHECK(stats.output_tokens == 3);
  CHECK(stats.first_token_us == 100);
  CHECK(stats.sample0_tokens == 2);
  CHECK(stats.sample0_first_us == 200);
  CHECK(stats.sample0_last_us == 300);
}

}  // namespace
}  // namespace hearth::engine
