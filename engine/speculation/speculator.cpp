#include "engine/speculation/speculator.h"

#include <algorithm>
#include <utility>

#include "engine/memory_plan.h"
#include "engine/speculation/lookup_proposer.h"

namespace hearth::engine {
namespace {

/// What a guess of each class is believed to be worth before any was verified.
constexpr std::array<double, kConfidences> kBeliefs = {0.3, 0.45, 0.65, 0.8};
/// All sequences together teach slower than one teaches itself.
constexpr double kSlowestBelief = 1.0 / 200;
/// A sequence whose guesses have not paid for this long is looked at every kIdleEvery steps only:
/// on a tiny model even a microsecond is seen.
constexpr int32_t kIdleAfter = 64;
constexpr int64_t kIdleEvery = 4;
/// What a step without guesses costs is measured at least so often, in decode steps: what guesses
/// gain is judged against it.
constexpr int64_t kPlainEvery = 128;

}  // namespace

Speculator::Speculator(const SpeculationConfig& config, std::unique_ptr<Proposer> first)
    : config_(config) {
  if (first != nullptr) proposers_.push_back(std::move(first));
  if (config.lookup) proposers_.push_back(std::make_unique<LookupProposer>());
  for (size_t i = 0; i < proposers_.size(); ++i) {
    auto& beliefs = beliefs_.emplace_back();
    for (size_t c = 0; c < beliefs.size(); ++c) {
      beliefs[c] = Acceptance(kBeliefs[c], kSlowestBelief);
    }
  }
}

Speculator::State& Speculator::state_of(const Sequence& seq) {
  const auto [found, fresh] = states_.try_emplace(&seq);
  State& state = found->second;
  if (!fresh) return state;
  for (const auto& beliefs : beliefs_) {
    auto& own = state.acceptance.emplace_back();
    for (size_t c = 0; c < own.size(); ++c) own[c] = Acceptance(beliefs[c].chance());
  }
  return state;
}

void Speculator::propose(std::span<Sequence* const> decoding, const StepCost& cost) {
  if (!config_.enabled) return;
  ++steps_;
  asked_.clear();
  asked_states_.clear();
  for (Sequence* seq : decoding) {
    seq->drafted.clear();
    if (forced_width_ > 0) {
      seq->drafted.assign(static_cast<size_t>(forced_width_), 0);
      continue;
    }
    const Request& request = seq->request->request;
    const int32_t left =
        seq->request->prompt_size() + request.max_tokens - static_cast<int32_t>(seq->tokens.size());
    if (!request.speculate || left < 2) continue;
    State& state = state_of(*seq);
    state.draft.tokens.clear();
    if (++state.idle_steps > kIdleAfter && (steps_ + seq->sample) % kIdleEvery != 0) continue;
    const int32_t widest = config_.fixed_width > 0 ? config_.fixed_width : config_.max_width;
    state.draft.seq = seq;
    state.draft.max_tokens = std::min(widest, left - 1);
    asked_.push_back(seq);
    asked_states_.push_back(&state);
  }
  if (asked_.empty()) return;
  ask_proposers();

  choices_.clear();
  for (const State* state : asked_states_) {
    const auto confidence = static_cast<size_t>(state->draft.confidence);
    const auto available = static_cast<int32_t>(state->draft.tokens.size());
    choices_.push_back({available > 0 ? state->acceptance[state->proposer][confidence].chance() : 0,
                        available, available});
  }
  if (config_.fixed_width == 0) {
    const auto plain_rows = static_cast<int32_t>(decoding.size());
    const bool plain = cost.steps_since(plain_rows) > kPlainEvery;
    choose_widths(choices_, plain_rows, plain ? 0 : kExtraOutputs,
                  [&](int32_t rows) { return cost.rows_us(rows); });
  }
  for (size_t i = 0; i < asked_.size(); ++i) {
    const std::vector<int32_t>& tokens = asked_states_[i]->draft.tokens;
    asked_[i]->drafted.assign(tokens.begin(), tokens.begin() + choices_[i].width);
  }
}

void Speculator::ask_proposers() {
  for (size_t p = 0; p < proposers_.size(); ++p) {
    wishes_.clear();
    for (State* state : asked_states_) {
      if (!state->draft.tokens.empty()) continue;
      state->proposer = p;
      wishes_.push_back(&state->draft);
    }
    if (!wishes_.empty()) proposers_[p]->propose(wishes_);
  }
}

void Speculator::learn(const Sequence& seq, size_t first, int32_t drafted, int32_t accepted) {
  if (!config_.enabled) return;
  if (drafted > 0) {
    ++counts_.verifications;
    counts_.drafted_tokens += static_cast<uint64_t>(drafted);
    counts_.accepted_tokens += static_cast<uint64_t>(accepted);
    for (int32_t i = 0; i < drafted; ++i) {
      const size_t at = std::min(static_cast<size_t>(i), SpeculationCounts::kPositions - 1);
      ++counts_.drafted_at[at];
      if (i < accepted) ++counts_.accepted_at[at];
    }
  }
  const auto found = states_.find(&seq);
  if (found == states_.end()) return;
  State& state = found->second;
  if (drafted > 0) state.idle_steps = 0;
  const std::vector<int32_t>& guesses = state.draft.tokens;
  const auto confidence = static_cast<size_t>(state.draft.confidence);
  // The tokens drawn judge one guess more than was verified.
  for (size_t i = 0; i < guesses.size() && first + i < seq.tokens.size(); ++i) {
    const bool right = seq.tokens[first + i] == guesses[i];
    state.acceptance[state.proposer][confidence].add(right);
    beliefs_[state.proposer][confidence].add(right);
    if (!right) break;
  }
  state.draft.tokens.clear();
}

void Speculator::forget(const LiveRequest& live) {
  for (const auto& seq : live.samples) {
    states_.erase(seq.get());
    for (const auto& proposer : proposers_) proposer->forget(*seq);
  }
}

}  // namespace hearth::engine
