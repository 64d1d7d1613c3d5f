#include "engine/speculation/draft_layer.h"

#include <algorithm>

#include "engine/speculation/rivals.h"
#include "kernels/base/numbers.h"
#include "kernels/base/sizes.h"

namespace hearth::engine {
namespace {

constexpr double kDraftOverheadGain = 0.1;
/// Of tokens that heads never draft: finite, as the sampler wants, and never drawn.
constexpr float kNeverDrafted = -1e30f;

bool has_penalties(const SamplingParams& params) {
  return params.repetition_penalty != 1.0f || params.presence_penalty != 0.0f ||
         params.frequency_penalty != 0.0f;
}

/// The request's, without what only a client sees.
SamplingParams sampling_of(const Sequence& seq) {
  SamplingParams params = seq.request->request.sampling;
  params.top_logprobs = -1;
  params.prompt_logprobs = false;
  return params;
}

}  // namespace

DraftLayer::DraftLayer(ModelRunner& runner, KvCache& kv, const Clock& clock)
    : runner_(runner),
      kv_(kv),
      clock_(clock),
      sampler_(runner.info().draft_tokens.empty() ? runner.info().draft_vocab
                                                  : runner.info().vocab_size) {
  if (!runner.info().draft_tokens.empty()) {
    all_logits_.assign(runner.info().vocab_size, kNeverDrafted);
  }
  plan_.by_draft_layer = true;
}

std::optional<double> DraftLayer::propose_us(int32_t sequences, int32_t tokens) const {
  if (!cost_.measured_any()) return std::nullopt;
  return overhead_us_ + rounds_us(sequences, tokens);
}

double DraftLayer::rounds_us(int32_t sequences, int32_t tokens) const {
  if (block() > 0) return cost_.rows_us(sequences * (tokens + 1));
  return tokens * cost_.rows_us(sequences);
}

// Makes the positions writable that are computed for `wanted` draft tokens: that of the last token,
// and of all drafts, the last one only in a block. Returns how many draft tokens there is room for.
int32_t DraftLayer::reserve(Sequence& seq, int32_t wanted, bool more_blocks) {
  const auto size = size32(seq.tokens);
  wanted = std::min(wanted, runner_.memory_plan().context_length - size);
  if (heads()) return wanted;  // which store nothing
  if (!more_blocks) wanted = std::min(wanted, kv_.reserved_tokens(seq.blocks) - size);
  const int32_t unstored = block() > 0 ? 0 : 1;
  for (; wanted > 0; --wanted) {
    const int32_t ahead = wanted - unstored;
    if (kv_.reserve(seq.blocks, size + ahead, plan_.copies, ahead)) return wanted;
  }
  return 0;
}

void DraftLayer::begin(std::span<Draft* const> drafts, bool more_blocks) {
  active_.clear();
  plan_.copies.clear();
  const MemoryPlan& memory = runner_.memory_plan();
  const size_t most = std::min(memory.max_seqs, memory.max_step_tokens);
  // Of blocks, which have at most twice as many rows.
  int32_t outputs = std::min(memory.max_outputs, memory.max_step_tokens / 2);
  for (Draft* draft : drafts) {
    draft->clear();
    Sequence& seq = *draft->seq;
    seq.drafted.clear();
    if (seq.hidden_step != runner_.num_steps() || active_.size() == most) continue;
    int32_t tokens = std::min(draft->max_tokens, max_tokens());
    if (block() > 0) tokens = std::min(tokens, outputs);
    const int32_t wanted = tokens > 0 ? reserve(seq, tokens, more_blocks) : 0;
    if (wanted > 0) active_.push_back({draft, wanted, seq.hidden_row});
    outputs -= wanted;
  }
  runner_.make_copies(plan_.copies);
  plan_.copies.clear();
}

void DraftLayer::propose(std::span<Draft* const> drafts, double catch_up_us) {
  const int64_t call_us = clock_.now_us();
  begin(drafts, catch_up_us > 0);
  double rounds_us = 0;
  for (int32_t round = 0; !active_.empty(); ++round) {
    const int64_t begin_us = clock_.now_us();
    if (block() > 0) {
      run_block();
    } else {
      run_round(round);
    }
    cost_.measured(plan_.num_tokens, {}, clock_.now_us() - begin_us);
    rounds_us += cost_.rows_us(plan_.num_tokens);
  }
  if (rounds_us > 0) {
    const double beyond = as_double(clock_.now_us() - call_us) - rounds_us;
    overhead_us_ += kDraftOverheadGain * (std::clamp(beyond, 0.0, rounds_us) - overhead_us_);
  }
  for (Draft* draft : drafts) draft->tokens.swap(draft->seq->drafted);
}

// One more token of each sequence; those that want no more leave active_.
void DraftLayer::run_round(int32_t round) {
  plan_.rows.clear();
  rows_.clear();
  wishes_.clear();
  for (const Active& each : active_) {
    const Sequence& seq = *each.draft->seq;
    PlannedRows rows;
    rows.seq = each.draft->seq;
    rows.first = rows.first_output = size32(seq.tokens) - 1 + round;
    rows.count = 1;
    plan_.rows.push_back(rows);
    rows_.push_back(each.row);
    wish(seq, rows.first + 1);
  }
  plan_.num_tokens = plan_.num_outputs = size32(active_);
  runner_.draft(plan_, rows_, round, wishes_);
  size_t kept = 0;
  for (size_t i = 0; i < active_.size(); ++i) {
    Active each = active_[i];
    Sequence& seq = *each.draft->seq;
    const std::optional<int32_t> token = draw(*each.draft, narrow<int32_t>(i));
    if (!token.has_value()) continue;
    seq.drafted.push_back(*token);
    each.row = narrow<int32_t>(i);
    if (size32(seq.drafted) < each.wanted) active_[kept++] = each;
  }
  active_.resize(kept);
}

// All tokens of each sequence, from one row for each and one for the text's last token.
void DraftLayer::run_block() {
  plan_.rows.clear();
  wishes_.clear();
  plan_.num_tokens = plan_.num_outputs = 0;
  for (const Active& each : active_) {
    Sequence& seq = *each.draft->seq;
    seq.drafted.assign(each.wanted, runner_.info().draft_mask);
    PlannedRows rows;
    rows.seq = &seq;
    rows.first = size32(seq.tokens) - 1;
    rows.count = each.wanted + 1;
    rows.first_output = rows.first + 1;
    plan_.rows.push_back(rows);
    plan_.num_tokens += rows.count;
    plan_.num_outputs += each.wanted;
    for (int32_t i = 0; i < each.wanted; ++i) wish(seq, rows.first_output + i);
  }
  runner_.draft(plan_, {}, 0, wishes_);
  int32_t output_row = 0;
  for (const Active& each : active_) {
    Sequence& seq = *each.draft->seq;
    seq.drafted.clear();
    for (int32_t i = 0; i < each.wanted; ++i) {
      const std::optional<int32_t> token = draw(*each.draft, output_row + i);
      if (!token.has_value()) break;
      seq.drafted.push_back(*token);
    }
    output_row += each.wanted;
  }
  active_.clear();
}

// The token at `position` is drawn on the device, where it can be.
void DraftLayer::wish(const Sequence& seq, int32_t position) {
  if (!runner_.picks_tokens() || !all_logits_.empty()) return;
  const auto wish = device_wish(sampling_of(seq), runner_.info().draft_vocab);
  const bool free = position - seq.request->prompt_size() >= seq.request->request.min_tokens;
  wishes_.push_back(wish.has_value() && free ? *wish : RowWish{});
  wishes_.back().draw.sample = seq.sample;
  wishes_.back().draw.position = position;
}

// Those of the tokens that can be drafted, each at its id.
std::span<float> DraftLayer::logits(int32_t output_row) {
  const std::span<float> row = runner_.logits(output_row).first(runner_.info().draft_vocab);
  if (all_logits_.empty()) return row;
  const std::vector<int32_t>& tokens = runner_.info().draft_tokens;
  for (size_t i = 0; i < tokens.size(); ++i) all_logits_[tokens[i]] = row[i];
  return all_logits_;
}

// Nothing if no token can follow: at the end of the text, or if the logits are not finite.
std::optional<int32_t> DraftLayer::draw(Draft& draft, int32_t output_row) {
  const Sequence& seq = *draft.seq;
  const Request& request = seq.request->request;
  const SamplingParams params = sampling_of(seq);
  const int32_t place = size32(seq.drafted);
  SampleArgs args;
  args.params = &params;
  args.sample = seq.sample;
  args.position = size32(seq.tokens) + place;
  args.history = seq.tokens;
  if (has_penalties(params)) {
    history_.assign(seq.tokens.begin(), seq.tokens.end());
    history_.insert(history_.end(), seq.drafted.begin(), seq.drafted.end());
    args.history = history_;
  }
  if (args.position - seq.request->prompt_size() < request.min_tokens) {
    args.banned = request.stop_ids;
  }
  int32_t token = 0;
  if (const auto drawn = runner_.drawn(output_row, params.seed, seq.sample, args.position)) {
    token = *drawn;
  } else if (const kernels::BestLogits* best = runner_.best_logits(output_row)) {
    const Result<Sampled> sampled = sampler_.sample(*best, args);
    if (!sampled.ok()) return std::nullopt;
    token = sampled->token;
  } else {
    const std::span<float> row = logits(output_row);
    const Result<Sampled> sampled = sampler_.sample(row, args);
    if (!sampled.ok()) return std::nullopt;
    token = sampled->token;
    if (script_ == nullptr) draw_rivals(sampler_, row, args, token, place, &draft);
  }
  if (script_ != nullptr) {
    token = script_->draft(seq, args.position, place).value_or(token);
    replay_rivals(*script_, args.position, place, &draft);
  }
  if (args.banned.empty() && std::ranges::find(request.stop_ids, token) != request.stop_ids.end()) {
    return std::nullopt;
  }
  return token;
}

}  // namespace hearth::engine
