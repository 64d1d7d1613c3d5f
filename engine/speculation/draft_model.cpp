#include "engine/speculation/draft_model.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "engine/speculation/rivals.h"
#include "kernels/base/check.h"
#include "kernels/base/numbers.h"
#include "kernels/base/sizes.h"

namespace hearth::engine {
namespace {

/// Rows of one step at most: more would only speed up prompts, which may take their time.
constexpr int32_t kDraftStepTokens = 256;
/// A shadow that lacks at most this many rows computes them in its first drafting step; the second
/// value applies if no time is given for catching up.
constexpr int32_t kNear = 32;
constexpr int32_t kVeryNear = 8;
/// The smallest chunk that is worth reading the weights for.
constexpr int32_t kMinChunk = 16;
constexpr double kOverheadGain = 0.1;

}  // namespace

Result<void> check_same_tokens(const models::Tokenizer& target, const models::Tokenizer& draft) {
  const auto differ = [](const std::string& what) {
    return Error::invalid("the draft model's tokens are not the model's: " + what, "draft");
  };
  if (target.vocab_size() != draft.vocab_size()) {
    return differ(fmt::format("it has {}, want {}", draft.vocab_size(), target.vocab_size()));
  }
  for (int32_t id = 0; id < target.vocab_size(); ++id) {
    const bool same = target.entry(id) == draft.entry(id) && target.piece(id) == draft.piece(id) &&
                      target.is_control(id) == draft.is_control(id) &&
                      target.is_end_of_generation(id) == draft.is_end_of_generation(id);
    if (!same) return differ(fmt::format("the first that differs is token {}", id));
  }
  return {};
}

Result<MemoryPlan> plan_draft_memory(const EngineConfig& config, const models::ModelInfo& target,
                                     const models::Model& draft, uint64_t device_free_bytes) {
  EngineConfig own = config;
  const int32_t wanted = config.context_length > 0 ? config.context_length : target.context_length;
  own.context_length = std::min(wanted, draft.info().context_length);
  own.kv_bytes = config.speculation.draft_kv_bytes;
  own.scheduler.chunked_prefill = true;
  own.scheduler.max_step_tokens = kDraftStepTokens;
  return plan_memory(own, draft, device_free_bytes);
}

Result<std::unique_ptr<DraftModel>> DraftModel::create(const EngineConfig& config,
                                                       const models::ModelInfo& target,
                                                       kernels::OpTable ops,
                                                       std::unique_ptr<models::Model> model,
                                                       const Clock& clock) {
  if (model->info().vocab_size != target.vocab_size) {
    return Error::invalid(fmt::format("the draft model's vocabulary has {} tokens, want {}",
                                      model->info().vocab_size, target.vocab_size),
                          "draft");
  }
  HEARTH_ASSIGN_OR_RETURN(const MemoryPlan plan,
                          plan_draft_memory(config, target, *model, ops.device.memory_free_bytes));
  HEARTH_ASSIGN_OR_RETURN(
      std::unique_ptr<ModelRunner> runner,
      ModelRunner::create(plan, config.kv_type, std::move(ops), std::move(model)));
  return std::unique_ptr<DraftModel>(new DraftModel(std::move(runner), clock));
}

DraftModel::DraftModel(std::unique_ptr<ModelRunner> runner, const Clock& clock)
    : runner_(std::move(runner)),
      kv_(runner_->memory_plan().block_size, runner_->memory_plan().kv_groups(runner_->info())),
      pools_(kv_, *runner_, runner_->memory_plan()),
      sampler_(runner_->info().vocab_size),
      clock_(clock),
      has_states_(kv_.has_states()) {}

std::optional<double> DraftModel::propose_us(int32_t sequences, int32_t tokens) const {
  if (!cost_.measured_any()) return std::nullopt;
  return overhead_us_ + tokens * cost_.rows_us(sequences);
}

// ---- Shadows --------------------------------------------------------------------------------

DraftModel::Shadow& DraftModel::shadow_of(const Sequence& seq) {
  std::unique_ptr<Shadow>& shadow = shadows_[&seq];
  if (shadow == nullptr) {
    shadow = std::make_unique<Shadow>();
    shadow->seq.request = seq.request;
    shadow->seq.sample = seq.sample;
    shadow->sampling = seq.request->request.sampling;
    shadow->sampling.top_logprobs = -1;
  }
  return *shadow;
}

void DraftModel::begin(Shadow& shadow) {
  Sequence& seq = shadow.seq;
  if (seq.request->request.use_prefix_cache) {
    kv_.begin(seq.blocks, seq.request->scope, seq.tokens, shadow.confirmed - 1);
  } else {
    kv_.begin_private(seq.blocks);
  }
  shadow.computed = seq.blocks.num_tokens;
}

// Sets the shadow's tokens to those of its sequence, keeping the KV of accepted draft tokens.
void DraftModel::follow(Shadow& shadow, const Sequence& seq) {
  Sequence& mine = shadow.seq;
  size_t same = shadow.confirmed;
  HEARTH_CHECK(same <= seq.tokens.size(), "{} tokens confirmed, now {}", same, seq.tokens.size());
  while (same < mine.tokens.size() && same < seq.tokens.size() &&
         mine.tokens[same] == seq.tokens[same]) {
    ++same;
  }
  mine.tokens.assign(seq.tokens.begin(), seq.tokens.end());
  shadow.confirmed = size32(mine.tokens);
  if (mine.blocks.tables.empty()) return begin(shadow);
  // The last token is computed (again): its logits are needed.
  shadow.computed = std::min({shadow.computed, narrow<int32_t>(same), shadow.confirmed - 1});
  if (has_states_) shadow.computed = std::min(shadow.computed, mine.blocks.num_tokens);
  if (shadow.computed > mine.blocks.num_tokens) {
    kv_.store(mine.blocks, mine.tokens, shadow.computed);
  }
  kv_.trim(mine.blocks);
}

DraftModel::Shadow* DraftModel::droppable_for(const Shadow& shadow) const {
  const auto age = [](const Shadow& other) {
    return std::pair(other.seq.request->arrival, other.seq.sample);
  };
  Shadow* best = nullptr;
  for (const auto& [seq, other] : shadows_) {
    if (other.get() == &shadow || other->seq.blocks.tables.empty()) continue;
    const bool asked = other->last_asked == calls_;
    // Keeps the older ones of those that draft in this call, and any with rows in this step.
    if (asked && (other->last_step == steps_ || age(*other) < age(shadow))) continue;
    const auto younger = [&age](const Shadow& x, const Shadow& y) { return age(y) < age(x); };
    if (best == nullptr || other->last_asked < best->last_asked ||
        (other->last_asked == best->last_asked && younger(*other, *best))) {
      best = other.get();
    }
  }
  return best;
}

bool DraftModel::reserve(Shadow& shadow, int32_t num_tokens, int32_t num_drafted) {
  SequenceBlocks& blocks = shadow.seq.blocks;
  const auto there = [&] {
    return kv_.reserve(blocks, num_tokens, plan_.copies, num_drafted) &&
           (num_drafted == 0 || kv_.unshare_state(blocks, plan_.copies));
  };
  while (!there()) {
    Shadow* dropped = droppable_for(shadow);
    if (dropped == nullptr) return false;
    kv_.release(dropped->seq.blocks);
    dropped->computed = 0;
    dropped->wanted = 0;
  }
  return true;
}

void DraftModel::forget(const Sequence& seq) {
  const auto found = shadows_.find(&seq);
  if (found == shadows_.end()) return;
  kv_.release(found->second->seq.blocks);
  shadows_.erase(found);
}

void DraftModel::check_integrity() const {
  std::vector<const SequenceBlocks*> blocks;
  for (const auto& [seq, shadow] : shadows_) blocks.push_back(&shadow->seq.blocks);
  kv_.check_integrity(blocks);
}

// ---- Steps ----------------------------------------------------------------------------------

// Plans rows [computed, end) for the coming step. Without room, returns false, and the shadow
// drafts no more.
bool DraftModel::add_rows(Shadow& shadow, int32_t end, bool output) {
  PlannedRows rows;
  rows.first = shadow.computed;
  rows.count = end - shadow.computed;
  rows.first_output = output ? end - 1 : end;
  if (!plan_rows(shadow, rows)) return false;
  shadow.computed = end;
  return true;
}

// The same for all draft tokens so far, of a model with states.
bool DraftModel::add_draft_rows(Shadow& shadow) {
  PlannedRows rows;
  rows.first = shadow.confirmed;
  rows.count = rows.num_drafted = size32(shadow.seq.tokens) - shadow.confirmed;
  rows.first_output = rows.first + rows.count - 1;
  if (kept_rows_ + rows.count > 2 * kKeptRows) {
    shadow.wanted = 0;
    return false;
  }
  shadow.seq.blocks.state.keep_first = kept_rows_;
  if (!plan_rows(shadow, rows)) return false;
  kept_rows_ += rows.count;
  return true;
}

bool DraftModel::plan_rows(Shadow& shadow, const PlannedRows& rows) {
  const MemoryPlan& memory = runner_->memory_plan();
  if (plan_.num_tokens + rows.count > memory.max_step_tokens ||
      size32(plan_.rows) == memory.max_seqs ||
      !reserve(shadow, rows.first + rows.count, rows.num_drafted)) {
    shadow.wanted = 0;
    return false;
  }
  shadow.last_step = steps_;
  plan_.rows.push_back(rows);
  plan_.rows.back().seq = &shadow.seq;
  plan_.num_tokens += rows.count;
  plan_.num_outputs += rows.first + rows.count - rows.first_output;
  return true;
}

void DraftModel::begin_step() {
  ++steps_;
  // In place: an allocation shows in the step of a tiny model.
  plan_.rows.clear();
  plan_.copies.clear();
  plan_.num_tokens = plan_.num_outputs = kept_rows_ = 0;
}

int64_t DraftModel::run_step() {
  const int64_t begin_us = clock_.now_us();
  runner_->run(plan_);
  return clock_.now_us() - begin_us;
}

void DraftModel::catch_up(std::span<Shadow* const> late, double budget_us) {
  Shadow& first = *late.front();
  const int32_t chunk = std::clamp(cost_.tokens_within(budget_us, first.computed), kMinChunk,
                                   runner_->memory_plan().max_step_tokens);
  begin_step();
  const int32_t from = first.computed;
  const int32_t end = std::min(from + chunk, first.confirmed - 1);
  if (end <= from || !add_rows(first, end, false)) return;
  const int64_t us = run_step();
  kv_.store(first.seq.blocks, first.seq.tokens, end);
  const PrefillRun run{from, end - from};
  cost_.measured(0, std::span(&run, 1), us);
}

void DraftModel::propose(std::span<Draft* const> drafts, double catch_up_us) {
  ++calls_;
  active_.clear();
  behind_.clear();
  const int32_t near = catch_up_us > 0 ? kNear : kVeryNear;
  for (Draft* draft : drafts) shadow_of(*draft->seq).last_asked = calls_;
  for (Draft* draft : drafts) {
    draft->clear();
    Shadow& shadow = shadow_of(*draft->seq);
    shadow.draft = draft;
    follow(shadow, *draft->seq);
    // The last draft token is drawn after the one before it, whose row must be in the context.
    shadow.wanted =
        std::min(draft->max_tokens, runner_->memory_plan().context_length - shadow.confirmed + 1);
    // Its last token was computed earlier, for a sequence that had no turn since: the logits are
    // gone, and positions it attended to may have left a sliding window.
    if (shadow.seq.blocks.num_tokens >= shadow.confirmed) shadow.wanted = 0;
    if (shadow.wanted <= 0) continue;
    if (shadow.confirmed - shadow.computed > near) {
      behind_.push_back(&shadow);
      shadow.wanted = 0;
    } else {
      active_.push_back(&shadow);
    }
  }
  if (!behind_.empty() && catch_up_us > 0) catch_up(behind_, catch_up_us);

  const int64_t call_us = clock_.now_us();
  double plain_us = 0;  // steps with one row of each
  for (int32_t round = 0; !active_.empty(); ++round) {
    begin_step();
    in_step_.clear();
    for (Shadow* shadow : active_) {
      if (shadow->wanted <= round) continue;
      const auto end = size32(shadow->seq.tokens);
      const bool again = has_states_ && round > 0;
      if (again ? add_draft_rows(*shadow) : add_rows(*shadow, end, true)) {
        in_step_.push_back(shadow);
      }
    }
    if (in_step_.empty()) break;
    const int64_t begin_us = clock_.now_us();
    run_step();
    for (size_t i = 0; i < in_step_.size(); ++i) {
      Shadow& shadow = *in_step_[i];
      if (round == 0) kv_.store(shadow.seq.blocks, shadow.seq.tokens, shadow.confirmed);
      if (!draw(shadow, narrow<int32_t>(i))) shadow.wanted = 0;
    }
    cost_.measured(plan_.num_tokens, {}, clock_.now_us() - begin_us);
    plain_us += cost_.rows_us(size32(in_step_));
  }
  if (plain_us > 0) {
    const double beyond = as_double(clock_.now_us() - call_us) - plain_us;
    overhead_us_ += kOverheadGain * (std::clamp(beyond, 0.0, plain_us) - overhead_us_);
  }
  for (Draft* draft : drafts) {
    const Shadow& shadow = shadow_of(*draft->seq);
    const auto& tokens = shadow.seq.tokens;
    draft->tokens.assign(tokens.begin() + shadow.confirmed, tokens.end());
  }
}

// False if no token can follow: at the end of the text, or if the logits are not finite.
bool DraftModel::draw(Shadow& shadow, int32_t output_row) {
  Sequence& seq = shadow.seq;
  const Request& request = seq.request->request;
  const auto position = size32(seq.tokens);
  SampleArgs args;
  args.params = &shadow.sampling;
  args.history = seq.tokens;
  if (position - seq.request->prompt_size() < request.min_tokens) args.banned = request.stop_ids;
  args.sample = seq.sample;
  args.position = position;
  const std::span<float> logits = runner_->logits(output_row);
  const Result<Sampled> sampled = sampler_.sample(logits, args);
  if (!sampled.ok()) return false;
  int32_t token = sampled->token;
  const int32_t place = position - shadow.confirmed;
  if (script_ != nullptr) {
    token = script_->draft(seq, position, place).value_or(token);
    replay_rivals(*script_, position, place, shadow.draft);
  } else {
    draw_rivals(sampler_, logits, args, token, place, shadow.draft);
  }
  const auto& stops = request.stop_ids;
  if (std::ranges::find(stops, token) != stops.end() && args.banned.empty()) return false;
  seq.tokens.push_back(token);
  return true;
}

}  // namespace hearth::engine
