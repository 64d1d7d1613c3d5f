// Plans the rows of draft tokens, and takes over what was verified.

#include <algorithm>
#include <utility>

#include "engine/kv/memory_plan.h"
#include "engine/scheduling/scheduler.h"
#include "kernels/base/sizes.h"

namespace hearth::engine {

void Scheduler::plan_drafts() {
  const auto has_none = [](const PlannedRows& rows) { return rows.seq->drafted.empty(); };
  if (std::ranges::all_of(plan_.rows, has_none)) return;
  const auto drop = [&] {
    for (const PlannedRows& rows : plan_.rows) drop_drafts(*rows.seq);
  };
  // Kept rows of drafts last until the next step that keeps some: by then all of them are replayed.
  const auto lags = [&](const Sequence* seq) {
    return !planned(*seq) && kv_.has_states() && seq->blocks.state.tokens < seq->blocks.num_tokens;
  };
  if (std::ranges::any_of(running_, lags)) return drop();
  const bool shared = prefill_wanted();
  // The cost of a plain step is learned from one.
  if (shared && cost_.wants_plain_step(plan_.num_decode_rows)) return drop();
  int32_t left = std::min(limits_.max_step_tokens - plan_.num_tokens, extra_outputs_left_);
  if (shared) left /= 2;
  const int32_t kept_begin = kept_rows_first_ = kKeptRows - kept_rows_first_;
  left = std::min(left, kv_.has_states() ? kKeptRows : left);
  for (PlannedRows& rows : plan_.rows) {
    Sequence& seq = *rows.seq;
    const auto size = size32(seq.tokens);
    const LiveRequest& live = *seq.request;
    // The last token of all is never one whose KV is needed.
    const int32_t useful = live.prompt_size() + live.request.max_tokens - size - 1;
    int32_t count = std::min({size32(seq.drafted), useful, left});
    if (count > 0 && (shared || !kv_.reserve(seq.blocks, size + count, plan_.copies, count))) {
      count = std::min(count, kv_.reserved_tokens(seq.blocks) - size);
    }
    count = std::max(count, 0);
    seq.drafted.resize(count);
    seq.blocks.state.keep_first = kept_begin + plan_.num_drafted;
    rows.count += count;
    rows.num_drafted = count;
    plan_.num_tokens += count;
    plan_.num_outputs += count;
    plan_.num_drafted += count;
    extra_outputs_left_ -= count;
    left -= count;
  }
  plan_branches(shared ? 0 : left);
}

// Only where nothing waits for blocks. Their rows follow those of all sequences.
void Scheduler::plan_branches(int32_t left) {
  const int32_t rows_before = plan_.num_tokens;
  int32_t places = kv_.has_states() ? 0 : kMaxBranches;
  for (PlannedRows& rows : plan_.rows) {
    Sequence& seq = *rows.seq;
    const auto size = size32(seq.tokens);
    const int32_t last = seq.request->prompt_size() + seq.request->request.max_tokens - 1;
    size_t kept = 0;
    for (DraftBranch& branch : seq.branches) {
      const int32_t first = size + branch.after;
      const int32_t count = std::min({size32(branch.tokens), last - first, left});
      if (count <= 0 || places == 0 || kept == kMaxBranchesOfSequence) continue;
      if (branch.after > size32(seq.drafted)) continue;
      if (!kv_.begin_branch(seq.blocks, first, first + count, branch.blocks, plan_.copies)) {
        continue;
      }
      branch.tokens.resize(count);
      branch.first_row = rows_before + plan_.num_branch_rows;
      plan_.num_branch_rows += count;
      left -= count;
      --places;
      std::swap(seq.branches[kept++], branch);
    }
    seq.branches.resize(kept);
  }
  plan_.num_tokens += plan_.num_branch_rows;
  plan_.num_outputs += plan_.num_branch_rows;
  plan_.num_drafted += plan_.num_branch_rows;
  extra_outputs_left_ -= plan_.num_branch_rows;
}

void Scheduler::accept(Sequence& seq) {
  kv_.store(seq.blocks, seq.tokens, size32(seq.tokens));
  ++seq.uncharged;
}

void Scheduler::take_branch(Sequence& seq, DraftBranch& branch) {
  kv_.take_branch(seq.blocks, branch.blocks);
  seq.drafted.resize(branch.after);
  seq.drafted.insert(seq.drafted.end(), branch.tokens.begin(), branch.tokens.end());
}

void Scheduler::drop_drafts(Sequence& seq) {
  seq.drafted.clear();
  for (DraftBranch& branch : seq.branches) kv_.drop_branch(branch.blocks);
  seq.branches.clear();
}

void Scheduler::end_verification(Sequence& seq) {
  drop_drafts(seq);
  if (seq.state == Sequence::State::kRunning) kv_.trim(seq.blocks);
}

}  // namespace hearth::engine
