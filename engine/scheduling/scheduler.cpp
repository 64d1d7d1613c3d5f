#include "engine/scheduling/scheduler.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/scheduling/prompt_scores.h"
#include "kernels/base/check.h"
#include "kernels/base/numbers.h"
#include "kernels/base/sizes.h"

namespace hearth::engine {
namespace {

/// How many of an owner's oldest waiting sequences compete by cached prefix, and how often the
/// oldest may be passed over.
constexpr int32_t kPrefixWindow = 8;
/// The recent past that counts for fairness between owners, in tokens served. A quiet owner's
/// prompt goes before a busy one's for about two thirds of it.
constexpr double kFairnessTokens = 16384;
/// An owner is charged for a prompt at its end, or after this many tokens. So prompts of several
/// owners are computed one after another, which finishes each sooner than taking turns would.
constexpr int32_t kChargeTokens = 4096;
/// Unchunked: decode steps after which a waiting prompt is prefilled regardless of the ratio, as
/// TGI's max_waiting_tokens (default 20).
constexpr int32_t kMaxDecodeStepsInARow = 20;
/// Prefill tokens of a step that packs its weights: they take about as long as the packing, for any
/// model.
constexpr int32_t kLateTokens = 128;

}  // namespace

Scheduler::Scheduler(const SchedulerConfig& config, const Limits& limits, KvCache& kv)
    : config_(config), limits_(limits), kv_(kv), owners_(kFairnessTokens) {
  kv_.set_cost(&cost_);
}

Scheduler::~Scheduler() {
  while (!live_.empty()) remove(*live_.back());
  kv_.set_cost(nullptr);
}

// ---- Requests in and out --------------------------------------------------------------------

Result<void> Scheduler::check_fits(const Request& request) const {
  const int64_t prompt = request.prompt.size();
  const int64_t total = prompt + request.max_tokens;
  if (total > limits_.context_length) {
    return Error::context_overflow(
        fmt::format("the prompt has {} tokens and max_tokens is {}: together {}, the "
                    "context holds {}",
                    prompt, request.max_tokens, total, limits_.context_length),
        "max_tokens");
  }
  if (request.n > config_.max_seqs) {
    return Error::invalid(
        fmt::format("n is {}, at most {} sequences run at once", request.n, config_.max_seqs), "n");
  }
  for (int32_t group = 0; group < kv_.num_groups(); ++group) {
    const int32_t needed = kv_.peak_blocks(group, narrow<int32_t>(total), limits_.max_step_tokens);
    if (needed <= kv_.pool(group).num_blocks()) continue;
    return Error::out_of_memory(
        fmt::format("prompt and output of {} tokens need {} KV blocks of {} tokens, the "
                    "pool of layer group {} has {}",
                    total, needed, kv_.block_size(), group, kv_.pool(group).num_blocks()),
        "max_tokens");
  }
  return {};
}

Result<LiveRequest*> Scheduler::add(Request request, std::string scope,
                                    std::vector<AppliedAdapter> adapters) {
  if (by_id_.contains(request.id)) {
    return Error::invalid(fmt::format("request id {} is in use by a live request", request.id),
                          "id");
  }
  HEARTH_TRY(check_fits(request));
  const int32_t queued = num_waiting() - num_preempted();
  if (queued >= config_.max_queue) {
    return Error::busy(
        fmt::format("{} requests are waiting, at most {} may", queued, config_.max_queue));
  }
  auto live = std::make_unique<LiveRequest>();
  live->arrival = next_arrival_++;
  live->owner = owners_.enter(request.owner);
  live->scope = std::move(scope);
  live->adapters = std::move(adapters);
  // Canvases share nothing.
  live->forked = request.n == 1 || request.canvas.has_value();
  live->request = std::move(request);
  const int32_t samples = live->request.canvas ? live->request.n : 1;
  for (int32_t sample = 0; sample < samples; ++sample) {
    live->samples.push_back(make_sequence(*live, sample));
    waiting_.push_back(live->samples.back().get());
  }
  settled_ = false;

  by_id_.emplace(live->request.id, live.get());
  live_.push_back(std::move(live));
  return live_.back().get();
}

std::unique_ptr<Sequence> Scheduler::make_sequence(LiveRequest& live, int32_t sample) const {
  const Request& request = live.request;
  auto seq = std::make_unique<Sequence>();
  seq->request = &live;
  seq->sample = sample;
  seq->tokens = request.prompt;
  std::span<const int32_t> resumed;
  if (live.forked && sample < size32(request.resume)) resumed = request.resume[sample];
  if (!request.canvas) {
    seq->tokens.insert(seq->tokens.end(), resumed.begin(), resumed.end());
    return seq;
  }
  seq->canvas.emplace(limits_.canvas, *request.canvas,
                      Canvas::Place{.prompt = live.prompt_size(),
                                    .length = request.max_tokens,
                                    .known = size32(resumed),
                                    .sample = sample,
                                    .seed = request.sampling.seed});
  resumed = resumed.first(seq->canvas->num_whole());
  seq->tokens.insert(seq->tokens.end(), resumed.begin(), resumed.end());
  seq->tokens.resize(live.prompt_size() + request.max_tokens, limits_.canvas.mask_token);
  return seq;
}

LiveRequest* Scheduler::find(RequestId id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : found->second;
}

std::vector<LiveRequest*> Scheduler::expired(int64_t now_us) const {
  std::vector<LiveRequest*> out;
  for (const auto& live : live_) {
    const int64_t deadline = live->request.deadline_us;
    if (deadline > 0 && now_us >= deadline) out.push_back(live.get());
  }
  return out;
}

void Scheduler::fork(LiveRequest& request) {
  HEARTH_CHECK(!request.forked && request.samples.size() == 1);
  Sequence& base = *request.samples.front();
  HEARTH_CHECK(base.blocks.num_tokens == request.prompt_size());
  kv_.drop_ahead(base.blocks);  // the rest of the prompt was computed
  const std::vector<std::vector<int32_t>>& resume = request.request.resume;
  for (int32_t sample = 1; sample < request.request.n; ++sample) {
    auto seq = std::make_unique<Sequence>();
    seq->request = &request;
    seq->sample = sample;
    seq->state = Sequence::State::kRunning;
    seq->tokens = base.tokens;
    seq->last_step = base.last_step;
    seq->last_turn = next_turn_++;
    seq->admitted_rank = base.admitted_rank;
    kv_.fork(base.blocks, seq->blocks);
    running_.push_back(seq.get());
    request.samples.push_back(std::move(seq));
  }
  for (size_t sample = 0; sample < resume.size(); ++sample) {
    std::vector<int32_t>& tokens = request.samples[sample]->tokens;
    tokens.insert(tokens.end(), resume[sample].begin(), resume[sample].end());
  }
  request.forked = true;  // n slots, one per sample from now on
}

void Scheduler::begin_pass(Sequence& seq) {
  kv_.release(seq.blocks);
  kv_.begin_private(seq.blocks);
}

void Scheduler::append(Sequence& seq, int32_t token) {
  seq.tokens.push_back(token);
  seq.decoding = seq.num_pending() == 1;
}

void Scheduler::finish(Sequence& seq, FinishReason reason) {
  if (seq.state == Sequence::State::kRunning) leave_running(seq);
  if (seq.state == Sequence::State::kWaiting) HEARTH_CHECK(std::erase(waiting_, &seq) == 1);
  seq.state = Sequence::State::kFinished;
  seq.reason = reason;
  settled_ = false;
}

void Scheduler::remove(LiveRequest& request) {
  for (const auto& seq : request.samples) {
    if (seq->state != Sequence::State::kFinished) finish(*seq, FinishReason::kCancelled);
  }
  owners_.leave(request.request.owner);
  by_id_.erase(request.request.id);
  std::erase_if(live_, [&](const auto& live) { return live.get() == &request; });
}

// ---- Order ----------------------------------------------------------------------------------

int32_t Scheduler::rank(const Sequence& seq) const {
  if (seq.decoding) return seq.admitted_rank;
  const auto priority = to_underlying(seq.request->request.priority);
  const int64_t age = passed_over_us_[priority] / config_.aging_us;
  // At most one above the highest class: then it goes before every other.
  const auto aged = narrow<int32_t>(std::max<int64_t>(-1, priority - age));
  return seq.state == Sequence::State::kRunning ? std::min(seq.admitted_rank, aged) : aged;
}

Scheduler::Seniority Scheduler::seniority(const Sequence& seq) const {
  return {rank(seq), seq.request->arrival, seq.sample};
}

bool Scheduler::goes_before(const Sequence& a, const Sequence& b) const {
  const int32_t rank_a = rank(a);
  const int32_t rank_b = rank(b);
  if (rank_a != rank_b) return rank_a < rank_b;
  const double served_a = owners_.position(*a.request->owner);
  const double served_b = owners_.position(*b.request->owner);
  if (served_a != served_b) return served_a < served_b;
  return std::pair(a.request->arrival, a.sample) < std::pair(b.request->arrival, b.sample);
}

// ---- The step -------------------------------------------------------------------------------

void Scheduler::begin_plan() {
  plan_.rows.clear();
  plan_.copies.clear();
  plan_.num_tokens = plan_.num_outputs = plan_.num_decode_rows = plan_.num_drafted = 0;
  plan_.num_branch_rows = 0;
  extra_outputs_left_ = limits_.max_outputs - config_.max_seqs;
  short_of_blocks_ = false;
}

const StepPlan& Scheduler::plan() {
  ++step_;
  begin_plan();
  if (running_.empty() && num_preempted() == 0) batch_open_ = true;

  make_room();
  if (config_.chunked_prefill) {
    plan_decode();
    const int32_t rows = plan_.num_decode_rows;
    if (rows == 0 || weights_late_ || !cost_.wants_plain_step(rows)) plan_prefill();
  } else {
    // Whole prompts pause decode: a step has either prefill or decode rows.
    if (prefill_turn()) plan_prefill();
    if (plan_.empty()) plan_decode();
    if (plan_.empty()) plan_prefill();
    decode_steps_in_a_row_ = plan_.num_decode_rows > 0 ? decode_steps_in_a_row_ + 1 : 0;
  }
  const auto restores = [](const Sequence* seq) { return seq->request->restore.waits(); };
  HEARTH_CHECK(!plan_.empty() || (short_of_blocks_ && kv_.bounded()) ||
                   (running_.empty() && std::ranges::all_of(waiting_, restores)),
               "nothing planned: running={} waiting={} {}", running_.size(), waiting_.size(),
               reason_);
  settled_ = true;
  num_ahead_ = 0;
  return plan_;
}

void Scheduler::plan_decode() {
  order_.clear();
  for (Sequence* seq : running_) {
    if (seq->decoding) order_.push_back(seq);
  }
  const size_t max_rows = limits_.max_step_tokens;
  std::ranges::sort(order_, {}, [&](const Sequence* seq) { return seniority(*seq); });
  if (order_.size() > max_rows) {
    // More sequences than rows: they take turns.
    std::ranges::sort(order_, {}, [](const Sequence* seq) { return seq->last_turn; });
  }
  for (Sequence* seq : order_) {
    if (plan_.rows.size() == max_rows) break;
    // An earlier sequence of this step may have preempted it.
    if (seq->state != Sequence::State::kRunning) continue;
    if (!reserve_or_preempt(*seq, size32(seq->tokens))) continue;
    plan_rows(*seq, 1);
    ++plan_.num_decode_rows;
  }
  // Rows with the same adapters next to each other: one product for all of them.
  std::ranges::stable_sort(plan_.rows, [](const PlannedRows& a, const PlannedRows& b) {
    return a.seq->request->adapters < b.seq->request->adapters;
  });
  plan_drafts();
}

void Scheduler::decoding(std::vector<Sequence*>& out) const {
  out.clear();
  for (Sequence* seq : running_) {
    if (seq->decoding) out.push_back(seq);
  }
}

bool Scheduler::prefill_wanted() const {
  return !waiting_.empty() ||
         std::ranges::any_of(running_, [](const Sequence* seq) { return !seq->decoding; });
}

bool Scheduler::prefill_turn() {
  size_t decoding = 0;
  for (const Sequence* seq : running_) decoding += seq->decoding ? 1 : 0;
  const size_t waiting = waiting_.size() + running_.size() - decoding;
  if (waiting == 0) return false;
  const double wanted = std::floor(config_.waiting_served_ratio * as_double(decoding));
  return decoding == 0 || as_double(waiting) >= wanted ||
         decode_steps_in_a_row_ >= kMaxDecodeStepsInARow;
}

void Scheduler::plan_prefill() {
  bool admission_open = true;
  if (config_.policy == SchedulerPolicy::kStatic && batch_open_) {
    // The whole batch is admitted at once, even if the step cannot compute all of it.
    while (Sequence* seq = next_prefill(admission_open)) {
      if (seq->state != Sequence::State::kWaiting || !admit(*seq)) break;
    }
    batch_open_ = running_.empty();
    admission_open = false;
  }
  const int32_t decode_rows = plan_.num_decode_rows;
  double room_us = weights_late_ ? cost_.prefill_us({0, kLateTokens})
                                 : cost_.prefill_room_us(decode_rows, config_.decode_step_stretch,
                                                         config_.prefill_step_us);
  if (plan_.num_drafted > 0) {
    room_us -=
        std::max(0.0, cost_.rows_us(decode_rows + plan_.num_drafted) - cost_.rows_us(decode_rows));
  }
  bool first = true;  // gets a row even if the device is too slow for the budget
  while (plan_.num_tokens < limits_.max_step_tokens) {
    Sequence* seq = next_prefill(admission_open);
    if (seq == nullptr) return;
    if (seq->state == Sequence::State::kWaiting) {
      if (config_.chunked_prefill && !first && room_us <= 0) return;
      if (!admit(*seq)) {
        // No later sequence may take the room it waits for.
        admission_open = false;
        continue;
      }
    }
    int32_t max_tokens = limits_.max_step_tokens - plan_.num_tokens;
    if (config_.chunked_prefill) {
      if (computed_beside(*seq)) {
        seq->skipped_step = step_;
        continue;
      }
      const int32_t within = cost_.tokens_within(room_us, seq->blocks.num_tokens);
      // A canvas that comes first is computed whatever it costs: half of one is worth nothing.
      if (!seq->canvas || !first) {
        max_tokens = std::min(max_tokens, std::max(within, first ? 1 : 0));
      }
      if (max_tokens == 0) return;
    }
    const int32_t taken = plan_chunk(*seq, max_tokens);
    if (taken == 0) {
      seq->skipped_step = step_;
      if (!config_.chunked_prefill) return;  // the step is full
      continue;
    }
    const double us = cost_.prefill_us({plan_.rows.back().first, taken});
    room_us -= us;
    if (first && seq->canvas) {
      // Each of its passes lasts as long as its step, to which every other owner adds as much
      // again.
      const int32_t others = owners_.num_live() - 1;
      if (others > 0) room_us = std::min(room_us, others * us);
    }
    first = false;
    if (seq->num_pending() == taken && plan_.num_decode_rows == 0 && !seq->canvas) {
      // Its first token comes with this step, which others' prompts shall not make longer.
      room_us = std::min(room_us, (config_.decode_step_stretch - 1) * cost_.decode_us(1));
    }
  }
}

Sequence* Scheduler::next_prefill(bool admission_open) {
  Sequence* best = nullptr;
  const auto consider = [&](Sequence* seq) {
    if (best == nullptr || goes_before(*seq, *best)) best = seq;
  };
  for (Sequence* seq : running_) {
    if (!seq->decoding && !planned(*seq) && seq->skipped_step != step_) consider(seq);
  }
  if (admission_open) {
    for (Sequence* seq : waiting_) {
      if (may_enter(*seq)) consider(seq);
    }
  }
  if (best == nullptr || best->state != Sequence::State::kWaiting) return best;
  return slots_short(*best) > 0 ? best : longest_cached_of_owner(*best);
}

Sequence* Scheduler::longest_cached_of_owner(Sequence& first) {
  if (first.passed_over >= kPrefixWindow) return &first;
  order_.clear();
  for (Sequence* seq : waiting_) {
    if (seq->request->owner == first.request->owner && may_enter(*seq) &&
        rank(*seq) == rank(first)) {
      order_.push_back(seq);
    }
  }
  if (order_.size() < 2) return &first;
  std::ranges::sort(order_, {}, [&](const Sequence* seq) { return seniority(*seq); });
  if (order_.size() > kPrefixWindow) order_.resize(kPrefixWindow);
  Sequence* best = &first;
  int32_t best_cached = -1;
  for (Sequence* seq : order_) {
    const int32_t cached =
        seq->request->request.use_prefix_cache
            ? kv_.cached_tokens(seq->request->scope, seq->tokens, hit_limit(*seq))
            : 0;
    if (cached > best_cached) {
      best = seq;
      best_cached = cached;
    }
  }
  if (best != &first) ++first.passed_over;
  return best;
}

void Scheduler::adopt(Sequence& seq) {
  const int32_t adopted = kv_.adopt(seq.blocks, seq.tokens, hit_limit(seq));
  if (seq.request->preemptions == 0) seq.request->stats.cached_tokens += adopted;
}

// Whether this step already computes the sequence's next block for another sequence with the same
// prefix. One step later the block can be shared, so it is not computed twice.
bool Scheduler::computed_beside(Sequence& seq) {
  LiveRequest& live = *seq.request;
  if (!live.request.use_prefix_cache) return false;
  const bool scored = live.scores_left(seq) > 0;
  if (scored) take_known_scores(kv_, live);
  adopt(seq);
  if (!kv_.can_adopt(seq.blocks)) return false;
  // Scores of the first token after a block are kept with the next block.
  const int32_t end = seq.blocks.num_tokens + (scored ? 2 : 1) * kv_.block_size();
  if (end >= size32(seq.tokens) || (!scored && end > hit_limit(seq))) return false;
  const std::span<const int32_t> prefix(seq.tokens.data(), end);
  return std::ranges::any_of(plan_.rows, [&](const PlannedRows& rows) {
    const LiveRequest& other = *rows.seq->request;
    if (scored && (end > other.prompt_size() || !keeps_scores_for(other.request, live.request))) {
      return false;
    }
    // Drafted rows are none of its tokens yet.
    return rows.first < end && rows.first + rows.count >= end && size32(rows.seq->tokens) >= end &&
           other.request.use_prefix_cache && other.scope == live.scope &&
           std::ranges::equal(prefix, std::span(rows.seq->tokens).first(prefix.size()));
  });
}

int32_t Scheduler::plan_chunk(Sequence& seq, int32_t max_tokens) {
  LiveRequest& request = *seq.request;
  adopt(seq);
  const int32_t first = seq.blocks.num_tokens;
  int32_t count = std::min(seq.num_pending(), max_tokens);
  const int32_t until = request.restore.compute_until;
  if (until > first) count = std::min(count, until - first);
  if ((!config_.chunked_prefill || seq.canvas) && count < seq.num_pending()) return 0;
  if (seq.canvas) {
    const int32_t outputs = size32(seq.canvas->rows());
    const bool fits = plan_.num_outputs + outputs <= limits_.max_outputs;
    if (!fits || !reserve_or_preempt(seq, first + count)) return 0;
    plan_rows(seq, count);
    return count;
  }
  if (config_.chunked_prefill) count = kv_.step_end(seq.blocks, first, first + count) - first;
  if (request.scores_left(seq) > 0) {
    // Every row from the first unknown one on is an output row, and those are few.
    const int32_t known = std::max(0, size32(request.prompt_logprobs) - first);
    count = std::min(count, known + 1 + extra_outputs_left_);
  }
  while (count > 0 && !reserve_or_preempt(seq, first + count)) count /= 2;
  if (count > 0) plan_rows(seq, count);
  return count;
}

void Scheduler::plan_rows(Sequence& seq, int32_t count) {
  LiveRequest& request = *seq.request;
  PlannedRows rows;
  rows.seq = &seq;
  rows.first = seq.blocks.num_tokens;
  rows.count = count;
  const int32_t end = rows.first + count;
  const bool last_alone = end == size32(seq.tokens) && !request.embeds() && !seq.canvas;
  rows.first_output = last_alone ? end - 1 : end;
  if (seq.canvas) rows.outputs = seq.canvas->rows();
  const int32_t first_unknown = std::max(rows.first, size32(request.prompt_logprobs));
  if (request.scores_left(seq) > 0 && first_unknown < std::min(end, request.prompt_size() - 1)) {
    rows.first_output = std::min(rows.first_output, first_unknown);
  }
  const int32_t outputs = rows.num_outputs();
  extra_outputs_left_ -= std::max(0, outputs - 1);
  rows.adapters = request.adapters;
  rows.starts_request = !request.started;
  request.started = true;
  seq.last_step = step_;
  seq.last_turn = next_turn_++;
  plan_.num_tokens += count;
  plan_.num_outputs += outputs;
  plan_.rows.push_back(rows);
}

void Scheduler::stored(const StepPlan& plan) {
  for (const PlannedRows& rows : plan.rows) {
    const int32_t count = rows.count - rows.num_drafted;
    kv_.store(rows.seq->blocks, rows.seq->tokens, rows.first + count);
    rows.seq->uncharged += count;
    if (rows.seq->num_pending() == 0 || rows.seq->uncharged >= kChargeTokens) charge(*rows.seq);
  }
}

void Scheduler::charge(Sequence& seq) {
  owners_.serve(*seq.request->owner, std::exchange(seq.uncharged, 0));
}

void Scheduler::finish_step(const StepPlan& plan, int64_t step_us) {
  prefill_runs_.clear();
  for (size_t i = plan.num_decode_rows; i < plan.rows.size(); ++i) {
    prefill_runs_.push_back({plan.rows[i].first, plan.rows[i].count});
  }
  if (!weights_late_)
    cost_.measured(plan.num_decode_rows + plan.num_drafted, prefill_runs_, step_us);
  // The classes that got prefill rows, and those that needed some.
  std::array<bool, 3> served{};
  std::array<bool, 3> wants{};
  for (size_t i = plan.num_decode_rows; i < plan.rows.size(); ++i) {
    served[to_underlying(plan.rows[i].seq->request->request.priority)] = true;
  }
  const auto note = [&wants](const Sequence* seq) {
    if (!seq->decoding) wants[to_underlying(seq->request->request.priority)] = true;
  };
  std::ranges::for_each(running_, note);
  std::ranges::for_each(waiting_, note);
  bool higher_served = false;
  for (size_t i = 0; i < served.size(); ++i) {
    if (served[i] || !wants[i]) {
      passed_over_us_[i] = 0;
    } else if (higher_served) {
      passed_over_us_[i] += step_us;
    }
    higher_served = higher_served || served[i];
  }
}

// ---- Reports --------------------------------------------------------------------------------

int32_t Scheduler::num_preempted() const {
  return narrow<int32_t>(
      std::ranges::count_if(waiting_, [](const Sequence* seq) { return seq->request->started; }));
}

std::vector<WaitingInfo> Scheduler::waiting() const {
  std::vector<Sequence*> order = waiting_;
  std::ranges::sort(order,
                    [&](const Sequence* a, const Sequence* b) { return goes_before(*a, *b); });
  std::vector<WaitingInfo> out;
  for (const Sequence* seq : order) {
    if (std::ranges::any_of(out, [&](const auto& info) { return info.request == seq->request; })) {
      continue;
    }
    const char* reason = "fairness";
    if (seq->request->restore.waits()) {
      reason = "restoring";
    } else if (slots_short(*seq) > 0 || !may_enter(*seq)) {
      reason = "slots";
    } else if (out.empty() && *reason_ != '\0') {
      reason = reason_;
    }
    out.push_back({seq->request, size32(out) + 1, reason});
  }
  return out;
}

void Scheduler::check_integrity() const {
  std::vector<const SequenceBlocks*> blocks;
  int32_t slots = 0;
  size_t running = 0;
  size_t waiting = 0;
  for (const auto& live : live_) {
    int32_t live_slots = 0;
    for (const auto& seq : live->samples) {
      blocks.push_back(&seq->blocks);
      if (seq->state == Sequence::State::kRunning) {
        ++running;
        live_slots += live->slots(*seq);
        HEARTH_CHECK(seq->blocks.num_tokens < size32(seq->tokens), "request {}: nothing to compute",
                     live->request.id);
      } else {
        waiting += seq->state == Sequence::State::kWaiting ? 1 : 0;
        HEARTH_CHECK(seq->blocks.tables.empty(), "request {} holds blocks", live->request.id);
      }
    }
    slots += live_slots;
  }
  HEARTH_CHECK(running == running_.size() && waiting == waiting_.size() && slots == slots_used_,
               "running {}/{} waiting {}/{} slots {}/{}", running, running_.size(), waiting,
               waiting_.size(), slots, slots_used_);
  HEARTH_CHECK(slots_used_ <= config_.max_seqs, "{} slots of {}", slots_used_, config_.max_seqs);
  kv_.check_integrity(blocks);
}

}  // namespace hearth::engine
