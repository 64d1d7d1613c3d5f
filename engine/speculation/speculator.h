#pragma once
// Decides before each step which sequences bring draft tokens and how many, and learns after the
// step how good they were.
//
// The proposers are asked in order for each decoding sequence, those with free drafts before those
// that compute. Of free drafts the first one of the highest class of confidence is used, unless a
// proposer that computes is more likely to be right and worth its time. Of several that compute,
// the one with the largest expected gain is asked. The number of tokens to verify follows from the
// chance that they are right (of free drafts per sequence and class of confidence, of others per
// place and sequence, starting from the average of all sequences) and from the measured cost of
// rows: see width_choice.h. Free drafts are made even
// where none is verified, and compared with the tokens drawn, so that a sequence whose text becomes
// predictable is noticed at no cost.
//
// A draft may have rivals: other tokens at a place of the chain, with what may follow them. Where
// one more row costs little, they are verified as branches: rows with a block table of their own,
// computed exactly as they would be alone. If the text goes on there, the branch's blocks take the
// place of the sequence's.
//
// Verification is by equality, for every request: the token at each position is drawn from the
// target's logits exactly as without drafts (the noise is addressed by seed, sample, position and
// token), and a draft token is accepted if it is that token. So the text is the same at any width,
// and the seed that `done` reports reproduces it, whether the client chose it or not. For drafts
// without probabilities, such as those of lookup, rejection sampling accepts with the same chance;
// see verifier.h.
//
// Owned by the engine thread. Memory: see LookupIndex, per live sequence.

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/config.h"
#include "engine/cost/step_cost.h"
#include "engine/kv/memory_plan.h"
#include "engine/speculation/acceptance.h"
#include "engine/speculation/proposer.h"
#include "engine/speculation/width_choice.h"

namespace hearth::engine {

class Speculator {
 public:
  /// In addition to lookup: `proposer` and the model's `draft_layer`; each may be null.
  Speculator(const SpeculationConfig& config, std::unique_ptr<Proposer> proposer,
             std::unique_ptr<Proposer> draft_layer = nullptr);

  /// Sets `drafted` of the sequences, which must be all that decode in the coming step.
  /// `first_tokens_due`: a request waits for its first token, so no proposer may catch up now.
  void propose(std::span<Sequence* const> decoding, const StepCost& cost, bool first_tokens_due);
  /// A step has drawn the tokens of `seq` from position `first` on, and verified `drafted` tokens.
  void learn(const Sequence& seq, size_t first, int32_t drafted);
  void forget(const LiveRequest& live);

  /// Makes every sequence verify `width` draft tokens, whatever they are; 0: back to what pays. For
  /// measuring the cost of rows before the first request.
  void force(int32_t width) { forced_width_ = width; }

  /// Lets proposers that compute draft for these sequences, to measure their cost. The drafts are
  /// dropped; each sequence must grow before the next call.
  void warm_up(std::span<Sequence* const> decoding);
  /// Expected speed of one sequence relative to plain decoding, if each draft token of the draft
  /// model is right with that chance; at least 1.
  double expected_gain(double chance, const StepCost& cost) const;
  void drop_draft_model();
  /// Whether there is a proposer that computes: a draft model, or the model's draft layer.
  bool has_paid_proposer() const;
  bool has_draft_model() const;

  bool enabled() const { return config_.enabled; }
  size_t num_sequences() const { return states_.size(); }
  void check_integrity() const;

 private:
  static constexpr int64_t kFirstTrial = 512;
  static constexpr int64_t kLastTrial = 8192;
  static constexpr int32_t kMaxTrialAsks = 8;

  struct State {
    Draft draft;  ///< of this step
    Draft rival;  ///< of a proposer that is asked after that draft's
    size_t proposer = 0;
    /// Per proposer and class of confidence; of a proposer that computes, the first stands for all.
    std::vector<std::array<Acceptance, kConfidences>> acceptance;
    int32_t idle_steps = 0;  ///< since a draft token of it was verified
  };

  /// StepCost::rows_us, looked up once per row count and step: the time shows on a tiny model.
  class RowsUs {
   public:
    void begin(const StepCost& cost, int32_t plain_rows);
    double operator()(int32_t rows);

   private:
    const StepCost* cost_ = nullptr;
    int32_t first_ = 0;
    std::array<double, kExtraOutputs + 1> known_{};  ///< 0: not looked up yet
  };

  /// What a proposer that computes could do for the coming step.
  struct Offer {
    size_t proposer = 0;
    std::vector<size_t> better;  ///< sequences for which it is more likely to be right
    int32_t width = 0;           ///< draft tokens of each; 0: it does not pay
    double gain = 0;             ///< expected speed with them, relative to plain decoding
  };
  /// When a proposer that does not pay is tried again, because its acceptance is unknown while it
  /// is not used.
  struct Trial {
    int64_t next = 0;  ///< step
    int64_t every = kFirstTrial;
    int32_t asks = 0;
  };

  State& state_of(const Sequence& seq);
  void ask_free_proposers();
  void ask_paid_proposers(int32_t plain_rows, double catch_up_us);
  Offer offer_of(size_t p, int32_t plain_rows) const;
  bool could_pay(const Offer& offer, double least_chance, int32_t plain_rows) const;
  double gain_with(const Offer& offer, int32_t width, int32_t plain_rows,
                   bool rivals = false) const;
  bool make_trial(Offer* offer, int32_t plain_rows);
  void ask(const Offer& offer, bool trial, int32_t plain_rows, double catch_up_us);
  Chances chances(const State& state, size_t proposer, int32_t confidence) const;
  double first_chance(const State& state, size_t proposer) const;
  bool rivals_pay(const Offer& offer, int32_t plain_rows) const;
  /// Fills choices_ from the current drafts.
  void lay_out_choices();
  WidthChoice choice_of(const State& state) const;
  void assign(const State& state, const WidthChoice& choice);

  const SpeculationConfig config_;
  std::vector<std::unique_ptr<Proposer>> proposers_;
  /// The average of all sequences, per proposer, from which a new sequence starts: by class of
  /// confidence, or by place if the proposer computes.
  std::vector<std::array<Acceptance, kConfidences>> beliefs_;
  std::vector<Acceptance> overall_;  ///< the same of all places, per proposer
  /// Per proposer and rank: that a rival is right where the chain is wrong, of all sequences.
  std::vector<std::array<Acceptance, kMaxRivals>> rival_beliefs_;
  std::unordered_map<const Sequence*, State> states_;
  int32_t forced_width_ = 0;
  std::vector<Trial> trials_;  ///< per proposer
  int64_t steps_ = 0;
  int64_t asks_ = 0;  ///< of proposers that compute
  mutable RowsUs rows_us_;
  // Scratch.
  std::vector<Sequence*> asked_;
  std::vector<State*> asked_states_;
  std::vector<Draft*> wishes_;
  std::vector<WidthChoice> choices_;
};

}  // namespace hearth::engine
