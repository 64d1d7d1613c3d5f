#include "engine/loop/engine_counters.h"

#include <utility>

#include "kernels/base/numbers.h"

namespace hearth::engine {

void EngineCounters::request_started(const LiveRequest& live) {
  totals_.prompt_tokens_total += live.prompt_size();
  totals_.prompt_tokens_cached += live.stats.cached_tokens;
  totals_.prompt_tokens_restored += live.stats.disk_tokens;
}

void EngineCounters::add_joined_tokens(uint64_t tokens) {
  totals_.prompt_tokens_cached += tokens;
  totals_.prompt_tokens_restored += tokens;
}

void EngineCounters::request_done(const RequestStats& stats, int64_t now_us) {
  if (!stats.started_us.has_value()) return;
  constexpr double kGain = 0.25;
  const auto took_us = as_double(now_us - *stats.started_us);
  service_us_ = service_us_ > 0 ? service_us_ + kGain * (took_us - service_us_) : took_us;
}

void EngineCounters::step_computed(const StepPlan& plan, const StepCost& cost, int64_t step_us) {
  accepted_in_step_ = 0;
  has_drafts_ = plan.num_drafted > 0;
  if (!has_drafts_) return;
  plain_us_ = cost.rows_us(plan.num_decode_rows);
  // Next to prefill rows, the cost of the decode rows alone is known from other steps.
  const int32_t rows = plan.num_decode_rows + plan.num_drafted;
  const bool prefills = plan.num_tokens > rows;
  // Drafting that led to no draft is charged to the next step that has some.
  drafted_us_ =
      std::exchange(uncharged_draft_us_, 0) + (prefills ? cost.rows_us(rows) : as_double(step_us));
}

void EngineCounters::verified(RequestStats& stats, const DraftSize& drafted, int32_t accepted,
                              int32_t draws, DraftedBy by) {
  if (has_drafts_) stats.speculation.saved_us += draws * plain_us_ - drafted_us_;
  if (drafted.tokens == 0) return;
  stats.speculation.add(drafted, accepted, by);
  totals_.speculation.add(drafted, accepted, by);
  accepted_in_step_ += accepted;
}

void EngineCounters::step_done(const StepPlan& plan, bool ahead, int64_t begin_us, int64_t end_us) {
  const int32_t prefilled = plan.num_tokens - plan.num_decode_rows - plan.num_drafted;
  const int32_t decoded = plan.num_decode_rows + accepted_in_step_;
  ++totals_.num_steps;
  if (ahead) ++totals_.num_steps_ahead;
  totals_.prefill_tokens_total += prefilled;
  totals_.decode_tokens_total += decoded;
  if (has_drafts_) {
    const double per_sequence = as_double(decoded) / plan.num_decode_rows;
    totals_.speculation.saved_us += per_sequence * plain_us_ - drafted_us_;
  }
  prefill_rate_.add(prefilled, begin_us, end_us);
  decode_rate_.add(decoded, begin_us, end_us);
  step_rate_.add(1, end_us - begin_us);
}

EngineSnapshot EngineCounters::snapshot(int64_t now_us) const {
  EngineSnapshot out = totals_;
  out.prefill_tokens_per_s = prefill_rate_.per_second(now_us);
  out.decode_tokens_per_s = decode_rate_.per_second(now_us);
  const double steps_per_s = step_rate_.per_second();
  out.step_ms_recent = steps_per_s > 0 ? 1000 / steps_per_s : 0;
  return out;
}

}  // namespace hearth::engine
