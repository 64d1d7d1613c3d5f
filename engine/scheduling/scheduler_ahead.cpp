// Plans the step after a planned one before that one's tokens are known. With the next step already
// in its queue, a device does not wait for the host between two steps.

#include <algorithm>

#include "engine/scheduling/scheduler.h"
#include "kernels/base/check.h"
#include "kernels/base/numbers.h"
#include "kernels/base/sizes.h"

namespace hearth::engine {
namespace {

/// Steps in a row that are planned ahead while a sequence waits: admission is not tried in them.
constexpr int32_t kAheadInARow = 8;

}  // namespace

bool Scheduler::reserve_ahead() {
  const bool all_decode = plan_.num_decode_rows == num_running() && plan_.num_drafted == 0 &&
                          plan_.rows.size() == running_.size();
  if (!all_decode || plan_.empty()) return false;
  const auto restores = [](const Sequence* seq) { return seq->request->restore.waits(); };
  const bool in_turn = config_.chunked_prefill && settled_ && num_ahead_ < kAheadInARow &&
                       std::ranges::none_of(waiting_, restores);
  if (!waiting_.empty() && !in_turn) return false;
  for (const PlannedRows& rows : plan_.rows) {
    const LiveRequest& live = *rows.seq->request;
    const auto drawn = size32(rows.seq->tokens) - live.prompt_size();
    if (drawn + 1 >= live.request.max_tokens) return false;
  }
  if (kv_.has_states()) {
    if (size32(plan_.rows) > kKeptRows) return false;
    kept_rows_first_ = kKeptRows - kept_rows_first_;
  }
  bool room = true;
  for (size_t i = 0; i < plan_.rows.size(); ++i) {
    Sequence& seq = *plan_.rows[i].seq;
    const size_t copies = plan_.copies.size();
    room = kv_.reserve_ahead(seq.blocks, size32(seq.tokens) + 1, plan_.copies) && room;
    seq.blocks.state.keep_first = kept_rows_first_ + narrow<int32_t>(i);
    // The block that this step writes is not shared any more, and the next block is new.
    HEARTH_CHECK(plan_.copies.size() == copies, "{} copies", plan_.copies.size() - copies);
  }
  if (!room) settle_ahead(false);
  return room;
}

void Scheduler::settle_ahead(bool launched) {
  // Nothing was kept: the rows that this step keeps are still the newest.
  if (!launched && kv_.has_states()) kept_rows_first_ = kKeptRows - kept_rows_first_;
  for (const PlannedRows& rows : plan_.rows) kv_.settle_ahead(rows.seq->blocks, launched);
}

const StepPlan& Scheduler::plan_ahead() {
  const uint64_t launched_ahead = step_++;
  ++num_ahead_;
  begin_plan();
  order_.clear();
  for (Sequence* seq : running_) {
    if (seq->decoding && seq->last_step == launched_ahead) order_.push_back(seq);
  }
  std::ranges::sort(order_, {}, [](const Sequence* seq) { return seq->last_turn; });
  for (Sequence* seq : order_) {
    drop_drafts(*seq);
    // It was reserved when it was launched; its state follows in the step after it.
    const bool there = kv_.reserve(seq->blocks, size32(seq->tokens), plan_.copies, 1);
    HEARTH_CHECK(there && plan_.copies.empty(), "{} copies", plan_.copies.size());
    plan_rows(*seq, 1);
    ++plan_.num_decode_rows;
  }
  if (!config_.chunked_prefill) ++decode_steps_in_a_row_;
  return plan_;
}

}  // namespace hearth::engine
