#pragma once
// Counts an engine's steps and requests, for snapshots and for the reports of a request. Decides
// nothing. Engine thread.

#include <cstdint>

#include "engine/cost/recent_rate.h"
#include "engine/cost/step_cost.h"
#include "engine/scheduling/scheduler.h"
#include "engine/scheduling/sequence.h"

namespace hearth::engine {

class EngineCounters {
 public:
  /// A request's first rows are in the coming step.
  void request_started(const LiveRequest& live);
  /// Prompt tokens that were restored after their request had started.
  void add_joined_tokens(uint64_t tokens);
  void request_done(const RequestStats& stats, int64_t now_us);

  /// Time that proposers took before the coming step.
  void add_draft_us(double us) { uncharged_draft_us_ += us; }
  /// The rows of a step are computed, in `step_us`; their tokens are drawn next.
  void step_computed(const StepPlan& plan, const StepCost& cost, int64_t step_us);
  /// A sequence had draft tokens in this step, of which `accepted` were right; `draws` tokens
  /// were drawn from its logits.
  void verified(RequestStats& stats, const DraftSize& drafted, int32_t accepted, int32_t draws,
                DraftedBy by);
  /// The tokens of the step are drawn. `ahead`: it was launched before those of the last one were.
  void step_done(const StepPlan& plan, bool ahead, int64_t begin_us, int64_t end_us);

  uint64_t num_steps() const { return totals_.num_steps; }
  /// Draft tokens that were right in this step.
  int32_t accepted_in_step() const { return accepted_in_step_; }
  /// Of recent requests, from the first row to the end; 0: none has ended.
  double service_us() const { return service_us_; }
  /// The counters and rates of a snapshot, and nothing else.
  EngineSnapshot snapshot(int64_t now_us) const;

 private:
  EngineSnapshot totals_;  ///< the counters that only grow
  RecentThroughput prefill_rate_;
  RecentThroughput decode_rate_;
  RecentRate step_rate_;
  double service_us_ = 0;

  // This step.
  int32_t accepted_in_step_ = 0;
  bool has_drafts_ = false;
  double plain_us_ = 0;            ///< time that the step would have taken without drafts
  double drafted_us_ = 0;          ///< time that the step took, including drafting for it
  double uncharged_draft_us_ = 0;  ///< drafting that no step was charged for yet
};

}  // namespace hearth::engine
