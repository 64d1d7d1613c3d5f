// The scheduler's second half: which sequences hold slots and blocks, are admitted or preempted.

#include <algorithm>
#include <functional>
#include <unordered_map>

#include "engine/scheduling/prompt_scores.h"
#include "engine/scheduling/scheduler.h"
#include "kernels/base/check.h"
#include "kernels/base/sizes.h"

namespace hearth::engine {

bool Scheduler::may_enter(const Sequence& seq) const {
  if (seq.request->restore.waits()) return false;
  return config_.policy == SchedulerPolicy::kContinuous || batch_open_ || seq.request->started;
}

int32_t Scheduler::hit_limit(const Sequence& seq) const {
  // The last token is always computed: its logits are needed.
  const int32_t limit = size32(seq.tokens) - 1;
  const LiveRequest& request = *seq.request;
  // Pooling needs the final rows of all tokens, and those of earlier requests are not kept.
  if (request.embeds() && request.request.pooling != models::Pooling::kLast) return 0;
  return request.scores_left(seq) > 0 ? std::min(limit, size32(request.prompt_logprobs)) : limit;
}

void Scheduler::begin_blocks(Sequence& seq) {
  LiveRequest& request = *seq.request;
  if (request.request.use_prefix_cache) {
    if (request.scores_left(seq) > 0) take_known_scores(kv_, request);
    kv_.begin(seq.blocks, request.scope, seq.tokens, hit_limit(seq));
    if (request.request.fork_of != 0) share_fork(seq);
  } else {
    kv_.begin_private(seq.blocks);
  }
}

// Full blocks were found by their tokens; the partly filled one after them belongs to the parent.
void Scheduler::share_fork(Sequence& seq) {
  const Request& request = seq.request->request;
  const LiveRequest* parent = find(request.fork_of);
  if (parent == nullptr || parent->scope != seq.request->scope) return;
  for (const auto& of : parent->samples) {
    // Until its prompt is computed, a request has one sequence for all samples.
    if (of->sample != request.fork_sample && parent->forked) continue;
    kv_.share_partial(of->blocks, of->tokens, seq.blocks, seq.tokens, hit_limit(seq));
    return;
  }
}

int32_t Scheduler::blocks_short(const Sequence& begun, int32_t group) const {
  const auto wanted = [&](const Sequence& seq) {
    return kv_.wanted_blocks(seq.blocks, group, size32(seq.tokens), limits_.max_step_tokens);
  };
  int32_t needed = wanted(begun);
  if (!running_.empty()) {
    // One more block per running sequence, so that the next block that one of them needs does not
    // preempt the new one.
    needed += size32(running_) + begun.request->slots(begun);
    for (const Sequence* seq : running_) {
      if (!seq->decoding) needed += wanted(*seq);
    }
  }
  return needed - kv_.pool(group).num_available();
}

int32_t Scheduler::slots_short(const Sequence& seq) const {
  return slots_used_ + seq.request->slots(seq) - config_.max_seqs;
}

bool Scheduler::admit(Sequence& seq) {
  if (slots_short(seq) > 0) {
    reason_ = "slots";
    return false;
  }
  begin_blocks(seq);
  for (int32_t group = 0; group < kv_.num_groups(); ++group) {
    if (blocks_short(seq, group) <= 0) continue;
    kv_.release(seq.blocks);
    reason_ = "blocks";
    short_of_blocks_ = true;
    return false;
  }
  kv_.count_uses(seq.blocks);
  if (kv_.has_states()) want_snapshots(seq);
  if (seq.request->preemptions == 0) seq.request->stats.cached_tokens = seq.blocks.num_tokens;
  reason_ = "";
  seq.admitted_rank = rank(seq);
  HEARTH_CHECK(std::erase(waiting_, &seq) == 1);
  running_.push_back(&seq);
  seq.state = Sequence::State::kRunning;
  slots_used_ += seq.request->slots(seq);
  seq.request->owner->slots_running += seq.request->slots(seq);
  if (on_admit_) on_admit_(seq);
  return true;
}

// At the end of the prompt, and at its marks.
void Scheduler::want_snapshots(Sequence& seq) {
  std::vector<int32_t> at = {seq.request->prompt_size()};
  for (const KeptPrefix& keep : seq.request->request.kept) at.push_back(keep.num_tokens);
  kv_.want_snapshots(seq.blocks, at);
}

std::vector<Sequence*> Scheduler::displaceable(const Sequence& waiting) const {
  std::vector<Sequence*> candidates = running_;
  std::ranges::sort(candidates, std::greater{},
                    [&](const Sequence* seq) { return seniority(*seq); });
  const LiveRequest& request = *waiting.request;
  const int32_t rank_waiting = rank(waiting);
  const int32_t slots_after = request.owner->slots_running + request.slots(waiting);
  std::unordered_map<const Owner*, int32_t> slots_left;
  std::vector<Sequence*> out;
  for (Sequence* seq : candidates) {
    const LiveRequest& other = *seq->request;
    int32_t& left = slots_left.try_emplace(other.owner, other.owner->slots_running).first->second;
    const int32_t slots = other.slots(*seq);
    const bool lower_class =
        other.request.priority > request.request.priority && rank(*seq) > rank_waiting;
    const bool same_class = other.request.priority == request.request.priority;
    const bool over_share =
        other.owner != request.owner && (same_class || lower_class) && left - slots >= slots_after;
    if (!lower_class && !over_share) continue;
    left -= slots;
    out.push_back(seq);
  }
  return out;
}

void Scheduler::make_room() {
  if (config_.policy == SchedulerPolicy::kStatic || waiting_.empty() || running_.empty()) return;
  Sequence* first = nullptr;
  for (Sequence* seq : waiting_) {
    if (seq->request->restore.waits()) continue;
    if (first == nullptr || goes_before(*seq, *first)) first = seq;
  }
  if (first == nullptr) return;
  const std::vector<Sequence*> victims = displaceable(*first);
  if (victims.empty()) return;

  int32_t slots = slots_short(*first);
  std::vector<int32_t> blocks;
  begin_blocks(*first);
  for (int32_t group = 0; group < kv_.num_groups(); ++group) {
    blocks.push_back(blocks_short(*first, group));
  }
  kv_.release(first->blocks);
  const auto enough = [&] {
    return slots <= 0 && std::ranges::all_of(blocks, [](int32_t n) { return n <= 0; });
  };
  size_t count = 0;
  while (!enough()) {
    if (count == victims.size()) return;  // preempting all of them would not make enough room
    const Sequence& victim = *victims[count++];
    slots -= victim.request->slots(victim);
    for (int32_t group = 0; group < kv_.num_groups(); ++group) {
      blocks[group] -= kv_.exclusive_blocks(victim.blocks, group) + 1;
    }
  }
  for (size_t i = 0; i < count; ++i) preempt(*victims[i]);
}

LiveRequest* Scheduler::preempted_with_room() {
  Sequence* first = nullptr;
  for (Sequence* seq : waiting_) {
    if (seq->request->restore.waits()) continue;
    if (first == nullptr || goes_before(*seq, *first)) first = seq;
  }
  if (first == nullptr || !first->request->started || slots_short(*first) > 0) return nullptr;
  begin_blocks(*first);
  bool room = true;
  for (int32_t group = 0; group < kv_.num_groups(); ++group) {
    room = room && blocks_short(*first, group) <= 0;
  }
  kv_.release(first->blocks);
  return room ? first->request : nullptr;
}

Sequence* Scheduler::youngest_behind(const Sequence& seq) const {
  Sequence* youngest = nullptr;
  for (Sequence* other : running_) {
    // A sequence with planned rows is more senior, or its rows are already part of this step.
    if (other == &seq || planned(*other)) continue;
    if (seniority(*other) < seniority(seq)) continue;
    if (youngest == nullptr || seniority(*youngest) < seniority(*other)) {
      youngest = other;
    }
  }
  return youngest;
}

bool Scheduler::reserve_or_preempt(Sequence& seq, int32_t num_tokens) {
  while (!kv_.reserve(seq.blocks, num_tokens, plan_.copies)) {
    short_of_blocks_ = true;
    if (!seq.blocks.ahead.blocks.empty()) {
      // Computing what was loaded ahead for it is better than preempting a sequence.
      kv_.drop_ahead(seq.blocks);
      continue;
    }
    Sequence* victim = youngest_behind(seq);
    if (victim == nullptr) return false;
    preempt(*victim);
  }
  return true;
}

void Scheduler::leave_running(Sequence& seq) {
  charge(seq);
  drop_drafts(seq);
  kv_.release(seq.blocks);
  HEARTH_CHECK(std::erase(running_, &seq) == 1);
  slots_used_ -= seq.request->slots(seq);
  seq.request->owner->slots_running -= seq.request->slots(seq);
  seq.decoding = false;
}

void Scheduler::preempt(Sequence& seq) {
  if (on_preempt_) on_preempt_(seq);
  leave_running(seq);
  seq.state = Sequence::State::kWaiting;
  waiting_.push_back(&seq);
  ++seq.request->preemptions;
  ++preemptions_total_;
}

}  // namespace hearth::engine
