#include "engine/speculation/speculator.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "engine/kv/memory_plan.h"
#include "engine/speculation/lookup_proposer.h"
#include "engine/speculation/prediction_proposer.h"
#include "kernels/base/check.h"
#include "kernels/base/sizes.h"

namespace hearth::engine {
namespace {

/// Assumed chance that a draft token of each class is right, before any was verified.
constexpr std::array<double, kConfidences> kBeliefs = {0.3, 0.45, 0.65, 0.8};
/// The same of a proposer that computes, at any place.
constexpr double kPaidBelief = 0.65;
static_assert(kPlaces == kConfidences, "beliefs_ has both");
/// The same for rivals, by rank.
constexpr std::array<double, kMaxRivals> kRivalBeliefs = {0.35, 0.2, 0.12};
/// Rivals that do not pay are asked for every so often, to learn how often they are right.
constexpr int64_t kRivalsEvery = 32;
constexpr double kRivalsMargin = 1.01;
/// The average of all sequences changes more slowly than that of one sequence.
constexpr double kSlowestBelief = 1.0 / 200;
constexpr double kLeastBelief = 0.01;
/// A sequence whose drafts have not paid for this many steps gets drafts only every kIdleEvery
/// steps: on a tiny model even a microsecond shows.
constexpr int32_t kIdleAfter = 64;
constexpr int64_t kIdleEvery = 4;
/// A step without drafts is measured at least this often, in decode steps: the gain of drafts is
/// relative to it.
constexpr int64_t kPlainEvery = 128;
/// A proposer that computes is asked for a token more than pays every so often, to learn how often
/// it is right at the next place.
constexpr int64_t kFurtherEvery = 64;
/// The expected gain from which a proposer that computes is used: its cost is known less well than
/// that of a row.
constexpr double kPaidMargin = 1.05;
/// Share of a plain step's time that a proposer may spend on catching up before it.
constexpr double kCatchUp = 0.5;
/// Time that a proposer may spend on catching up before the first request.
constexpr double kWarmUpUs = 1e6;

}  // namespace

Speculator::Speculator(const SpeculationConfig& config, std::unique_ptr<Proposer> proposer,
                       std::unique_ptr<Proposer> draft_layer)
    : config_(config) {
  const bool free = proposer != nullptr && proposer->free();
  if (free) proposers_.push_back(std::move(proposer));
  if (config.lookup) {
    proposers_.push_back(std::make_unique<PredictionProposer>());
    proposers_.push_back(std::make_unique<LookupProposer>());
  }
  if (!free && proposer != nullptr) proposers_.push_back(std::move(proposer));
  if (draft_layer != nullptr) proposers_.push_back(std::move(draft_layer));
  trials_.resize(proposers_.size());
  for (const auto& each : proposers_) {
    auto& beliefs = beliefs_.emplace_back();
    for (size_t c = 0; c < beliefs.size(); ++c) {
      beliefs[c] = Acceptance(each->free() ? kBeliefs[c] : kPaidBelief, kSlowestBelief);
    }
    overall_.emplace_back(kPaidBelief, kSlowestBelief);
    auto& rivals = rival_beliefs_.emplace_back();
    for (size_t rank = 0; rank < rivals.size(); ++rank) {
      rivals[rank] = Acceptance(kRivalBeliefs[rank], kSlowestBelief);
    }
  }
}

void Speculator::RowsUs::begin(const StepCost& cost, int32_t plain_rows) {
  cost_ = &cost;
  first_ = plain_rows;
  known_.fill(0);
}

double Speculator::RowsUs::operator()(int32_t rows) {
  const size_t at = std::max(0, rows - first_);
  if (rows < first_ || at >= known_.size()) return cost_->rows_us(rows);
  if (known_[at] == 0) known_[at] = cost_->rows_us(rows);
  return known_[at];
}

Speculator::State& Speculator::state_of(const Sequence& seq) {
  const auto [found, fresh] = states_.try_emplace(&seq);
  State& state = found->second;
  if (!fresh) return state;
  for (size_t p = 0; p < proposers_.size(); ++p) {
    auto& own = state.acceptance.emplace_back();
    for (size_t c = 0; c < own.size(); ++c) own[c] = Acceptance(beliefs_[p][c].chance());
    if (!proposers_[p]->free()) own.front() = Acceptance(overall_[p].chance());
  }
  return state;
}

void Speculator::propose(std::span<Sequence* const> decoding, const StepCost& cost,
                         bool first_tokens_due) {
  if (!config_.enabled) return;
  ++steps_;
  asked_.clear();
  asked_states_.clear();
  for (Sequence* seq : decoding) {
    seq->drafted.clear();
    seq->branches.clear();
    if (forced_width_ > 0) {
      seq->drafted.assign(forced_width_, 0);
      continue;
    }
    const Request& request = seq->request->request;
    const int32_t left = seq->request->prompt_size() + request.max_tokens - size32(seq->tokens);
    if (!request.speculate || left < 2) continue;
    State& state = state_of(*seq);
    state.draft.clear();
    if (++state.idle_steps > kIdleAfter && (steps_ + seq->sample) % kIdleEvery != 0) continue;
    const int32_t widest = config_.fixed_width > 0 ? config_.fixed_width : config_.max_width;
    state.draft.seq = seq;
    state.draft.max_tokens = std::min(widest, left - 1);
    state.draft.max_rivals = config_.max_rivals;
    asked_.push_back(seq);
    asked_states_.push_back(&state);
  }
  if (asked_.empty()) return;
  const auto plain_rows = size32(decoding);
  rows_us_.begin(cost, plain_rows);
  ask_free_proposers();
  const double catch_up_us = first_tokens_due ? 0 : kCatchUp * cost.rows_us(plain_rows);
  const bool plain = config_.fixed_width == 0 && cost.steps_since(plain_rows) > kPlainEvery;
  if (!plain && has_paid_proposer()) ask_paid_proposers(plain_rows, catch_up_us);
  lay_out_choices();
  if (config_.fixed_width == 0) {
    choose_widths(choices_, plain_rows, plain ? 0 : kExtraOutputs, std::ref(rows_us_));
  }
  for (size_t i = 0; i < asked_.size(); ++i) assign(*asked_states_[i], choices_[i]);
}

void Speculator::assign(const State& state, const WidthChoice& choice) {
  const Draft& draft = state.draft;
  if (draft.tokens.empty()) return;
  Sequence& seq = *draft.seq;
  seq.drafted.assign(draft.tokens.begin(), draft.tokens.begin() + choice.width);
  seq.drafted_by = proposers_[state.proposer]->kind();
  if (choice.width == 0) return;
  for (size_t i = 0; i < choice.branches.size(); ++i) {
    const BranchChoice& branch = choice.branches[i];
    if (branch.width == 0) continue;
    const std::vector<int32_t>& tokens = draft.rivals[i].tokens;
    DraftBranch& to = seq.branches.emplace_back();
    to.after = branch.after;
    to.tokens.assign(tokens.begin(), tokens.begin() + branch.width);
  }
}

double Speculator::first_chance(const State& state, size_t proposer) const {
  return chances(state, proposer, 0).front();
}

// Too few draft tokens of one sequence are judged at later places, so places have the averages of
// all sequences, times how much better the drafts of this one are.
Chances Speculator::chances(const State& state, size_t proposer, int32_t confidence) const {
  const double own = state.acceptance[proposer][confidence].chance();
  if (proposers_[proposer]->free()) return every_place(own);
  const double better = own / std::max(overall_[proposer].chance(), kLeastBelief);
  Chances out{};
  for (size_t place = 0; place < kPlaces; ++place) {
    out[place] = std::min(1.0, better * beliefs_[proposer][place].chance());
  }
  return out;
}

WidthChoice Speculator::choice_of(const State& state) const {
  const Draft& draft = state.draft;
  const auto available = size32(draft.tokens);
  if (available == 0) return {};
  WidthChoice out{chances(state, state.proposer, draft.confidence), available, available};
  for (const Draft::Rival& rival : draft.rivals) {
    const double instead = rival_beliefs_[state.proposer][rival.rank].chance();
    const int32_t tokens = size32(rival.tokens);
    out.branches.push_back({rival.place, (1 - out.chance(rival.place)) * instead, tokens, tokens});
  }
  return out;
}

void Speculator::lay_out_choices() {
  choices_.clear();
  for (const State* state : asked_states_) choices_.push_back(choice_of(*state));
}

void Speculator::ask_free_proposers() {
  for (size_t p = 0; p < proposers_.size(); ++p) {
    if (!proposers_[p]->free()) continue;
    wishes_.clear();
    for (State* state : asked_states_) {
      if (!state->draft.tokens.empty() && state->draft.confidence == kConfidences - 1) continue;
      state->rival.seq = state->draft.seq;
      state->rival.max_tokens = state->draft.max_tokens;
      state->rival.max_rivals = state->draft.max_rivals;
      wishes_.push_back(&state->rival);
    }
    if (wishes_.empty()) continue;
    proposers_[p]->propose(wishes_, 0);
    for (State* state : asked_states_) {
      Draft& rival = state->rival;
      const bool better = state->draft.tokens.empty() || rival.confidence > state->draft.confidence;
      if (!rival.tokens.empty() && better) {
        std::swap(state->draft, rival);
        state->proposer = p;
      }
      rival.clear();
    }
  }
}

Speculator::Offer Speculator::offer_of(size_t p, int32_t plain_rows) const {
  Offer offer{.proposer = p, .better = {}};
  for (size_t i = 0; i < asked_states_.size(); ++i) {
    if (!asked_[i]->request->request.use_draft) continue;
    const double own = first_chance(*asked_states_[i], p);
    const bool none = choices_[i].available == 0;
    if (none || (config_.fixed_width == 0 && own > choices_[i].chance(0))) {
      offer.better.push_back(i);
    }
  }
  if (offer.better.empty() || config_.fixed_width > 0) {
    offer.width = std::min(config_.fixed_width, proposers_[p]->max_tokens());
    return offer;
  }
  const int32_t widest = std::min(config_.max_width, proposers_[p]->max_tokens());
  const bool possible = could_pay(offer, 0, plain_rows);
  for (int32_t k = 1; possible && k <= widest; ++k) {
    const double gain = gain_with(offer, k, plain_rows);
    if (gain <= offer.gain) continue;
    offer.gain = gain;
    offer.width = k;
  }
  return offer;
}

// Whether drafts would be worth their time if each were as likely to be right as the likeliest, or
// `least_chance`. It bounds gain_with(), whose own time shows on a tiny model.
bool Speculator::could_pay(const Offer& offer, double least_chance, int32_t plain_rows) const {
  const Proposer& proposer = *proposers_[offer.proposer];
  const int32_t asked = size32(offer.better);
  if (!proposer.propose_us(asked, 1).has_value()) return false;
  double likeliest = least_chance;
  int32_t free_tokens = 0;
  for (const WidthChoice& choice : choices_) {
    likeliest = std::max(likeliest, choice.chance(0));
    free_tokens += choice.available;
  }
  for (const size_t i : offer.better) {
    const Chances own = chances(*asked_states_[i], offer.proposer, 0);
    likeliest = std::max(likeliest, *std::ranges::max_element(own));
    free_tokens -= choices_[i].available;
  }
  const double plain_us = rows_us_(plain_rows);
  const int32_t widest = std::min(config_.max_width, proposer.max_tokens());
  for (int32_t width = 1, extra = 1; width <= widest; ++width) {
    const double spent = *proposer.propose_us(asked, width);
    const int32_t most = std::min(kExtraOutputs, free_tokens + width * asked);
    for (; extra <= most; ++extra) {
      const double tokens = 1 + extra * std::min(likeliest, 1.0) / plain_rows;
      if (tokens * plain_us > kPaidMargin * (rows_us_(plain_rows + extra) + spent)) return true;
    }
  }
  return false;
}

double Speculator::gain_with(const Offer& offer, int32_t width, int32_t plain_rows,
                             bool rivals) const {
  std::vector<WidthChoice> with = choices_;
  for (const size_t i : offer.better) {
    const State& state = *asked_states_[i];
    with[i] = {chances(state, offer.proposer, 0), std::min(width, state.draft.max_tokens), 0};
    const double instead = rival_beliefs_[offer.proposer].front().chance();
    for (int32_t place = 0; rivals && place < width; ++place) {
      with[i].branches.push_back({place, (1 - with[i].chance(place)) * instead, 1});
    }
  }
  const auto spent = proposers_[offer.proposer]->propose_us(size32(offer.better), width);
  return choose_widths(with, plain_rows, kExtraOutputs, std::ref(rows_us_), spent.value_or(0));
}

void Speculator::ask_paid_proposers(int32_t plain_rows, double catch_up_us) {
  lay_out_choices();
  std::vector<Offer> offers;
  for (size_t p = 0; p < proposers_.size(); ++p) {
    if (proposers_[p]->free()) continue;
    Offer offer = offer_of(p, plain_rows);
    if (!offer.better.empty()) offers.push_back(std::move(offer));
  }
  if (offers.empty()) return;
  if (config_.fixed_width > 0) return ask(offers.front(), false, plain_rows, catch_up_us);
  const Offer& best = *std::ranges::max_element(offers, {}, &Offer::gain);
  if (best.width > 0) {
    std::vector<WidthChoice> without = choices_;
    const double other = choose_widths(without, plain_rows, kExtraOutputs, std::ref(rows_us_));
    if (best.gain > kPaidMargin * other) {
      trials_[best.proposer].every = kFirstTrial;
      return ask(best, false, plain_rows, catch_up_us);
    }
  }
  for (Offer& offer : offers) {
    if (make_trial(&offer, plain_rows)) return ask(offer, true, plain_rows, catch_up_us);
  }
}

bool Speculator::make_trial(Offer* offer, int32_t plain_rows) {
  if (steps_ < trials_[offer->proposer].next) return false;
  const bool known = proposers_[offer->proposer]->propose_us(1, 1).has_value();
  if (known && !could_pay(*offer, 1.0, plain_rows)) return false;  // whatever it drafts
  offer->better.resize(1);
  offer->width = 1;
  return true;
}

// Whether rivals of the offer's draft tokens would be verified, or are due to be compared with
// what is drawn, which takes no row.
bool Speculator::rivals_pay(const Offer& offer, int32_t plain_rows) const {
  if (config_.max_rivals == 0) return false;
  if (config_.fixed_width > 0 || asks_ % kRivalsEvery == 0) return true;
  return gain_with(offer, offer.width, plain_rows, true) > kRivalsMargin * offer.gain;
}

void Speculator::ask(const Offer& offer, bool trial, int32_t plain_rows, double catch_up_us) {
  ++asks_;
  const bool rivals = rivals_pay(offer, plain_rows);
  const bool further = config_.fixed_width == 0 && asks_ % kFurtherEvery == 0;
  const int32_t most = proposers_[offer.proposer]->max_tokens();
  const int32_t wanted = std::min(most, offer.width + (further ? 1 : 0));
  wishes_.clear();
  for (const size_t i : offer.better) {
    State& state = *asked_states_[i];
    state.proposer = offer.proposer;
    state.draft.clear();
    state.draft.confidence = 0;
    if (!rivals) state.draft.max_rivals = 0;
    state.draft.max_tokens = std::min(state.draft.max_tokens, wanted);
    wishes_.push_back(&state.draft);
  }
  proposers_[offer.proposer]->propose(wishes_, catch_up_us);
  const bool has_draft =
      std::ranges::any_of(wishes_, [](const Draft* d) { return !d->tokens.empty(); });
  Trial& state = trials_[offer.proposer];
  if (trial) ++state.asks;
  // A trial lasts until there is a draft, or until catching up has cost enough.
  if (trial && !has_draft && state.asks < kMaxTrialAsks) return;
  state.asks = 0;
  state.next = steps_ + state.every;
  if (trial) state.every = std::min(2 * state.every, kLastTrial);
}

void Speculator::warm_up(std::span<Sequence* const> decoding) {
  std::vector<Draft> drafts(decoding.size());
  wishes_.clear();
  for (size_t i = 0; i < drafts.size(); ++i) {
    drafts[i].seq = decoding[i];
    drafts[i].max_tokens = std::max(1, config_.max_width / 2);
    wishes_.push_back(&drafts[i]);
  }
  for (const auto& proposer : proposers_) {
    if (!proposer->free() && !wishes_.empty()) proposer->propose(wishes_, kWarmUpUs);
  }
  wishes_.clear();
}

double Speculator::expected_gain(double chance, const StepCost& cost) const {
  double best = 1;
  for (const auto& proposer : proposers_) {
    const bool draft_model = proposer->kind() == DraftedBy::kDraftModel;
    for (int32_t k = 1; draft_model && k <= config_.max_width; ++k) {
      const std::optional<double> spent = proposer->propose_us(1, k);
      if (!spent.has_value()) break;
      WidthChoice choice{every_place(chance), k, 0};
      best = std::max(best, choose_widths(
                                {&choice, 1}, 1, kExtraOutputs,
                                [&](int32_t rows) { return cost.rows_us(rows); }, *spent));
    }
  }
  return best;
}

bool Speculator::has_paid_proposer() const {
  return std::ranges::any_of(proposers_, [](const auto& each) { return !each->free(); });
}

bool Speculator::has_draft_model() const {
  return std::ranges::any_of(
      proposers_, [](const auto& each) { return each->kind() == DraftedBy::kDraftModel; });
}

void Speculator::drop_draft_model() {
  HEARTH_CHECK(states_.empty(), "{} sequences", states_.size());
  for (size_t p = proposers_.size(); p-- > 0;) {
    if (proposers_[p]->kind() != DraftedBy::kDraftModel) continue;
    proposers_.erase(proposers_.begin() + p);
    beliefs_.erase(beliefs_.begin() + p);
    overall_.erase(overall_.begin() + p);
    rival_beliefs_.erase(rival_beliefs_.begin() + p);
    trials_.erase(trials_.begin() + p);
  }
}

void Speculator::check_integrity() const {
  for (const auto& proposer : proposers_) proposer->check_integrity();
}

void Speculator::learn(const Sequence& seq, size_t first, int32_t drafted) {
  if (!config_.enabled) return;
  const auto found = states_.find(&seq);
  if (found == states_.end()) return;
  State& state = found->second;
  if (drafted > 0) state.idle_steps = 0;
  const std::vector<int32_t>& drafted_tokens = state.draft.tokens;
  // The tokens drawn judge one draft token more than was verified.
  for (size_t i = 0; i < drafted_tokens.size() && first + i < seq.tokens.size(); ++i) {
    const bool right = seq.tokens[first + i] == drafted_tokens[i];
    const bool free = proposers_[state.proposer]->free();
    const size_t of_class = free ? state.draft.confidence : std::min(i, kPlaces - 1);
    state.acceptance[state.proposer][free ? of_class : 0].add(right);
    overall_[state.proposer].add(right);
    beliefs_[state.proposer][of_class].add(right);
    if (right) continue;
    for (const Draft::Rival& rival : state.draft.rivals) {
      if (std::cmp_not_equal(rival.place, i)) continue;
      const bool instead = seq.tokens[first + i] == rival.tokens.front();
      rival_beliefs_[state.proposer][rival.rank].add(instead);
    }
    break;
  }
  state.draft.clear();
}

void Speculator::forget(const LiveRequest& live) {
  for (const auto& seq : live.samples) {
    states_.erase(seq.get());
    for (const auto& proposer : proposers_) proposer->forget(*seq);
  }
}

}  // namespace hearth::engine
