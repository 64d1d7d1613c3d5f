#pragma once
// Decides before each step which sequences bring guesses and how many, and learns after it how good
// they were.
//
// Every decoding sequence is offered to the proposers in order, those whose guesses are free before
// those that compute; the first that has a guess gives it, unless one that computes is likelier
// right and worth its time. How many of its tokens are verified follows from the chance that they
// are right (per sequence and class of confidence, begun at what all sequences taught) and from the
// measured cost of rows: see width_choice.h. Guesses that cost nothing are made even where none is
// verified and compared with what was drawn, so that a sequence whose text becomes predictable is
// noticed without one row spent.
//
// Verification is by equality, for every request: the token at each position is drawn from the
// target's logits exactly as without guesses (the noise is addressed by seed, sample, position and
// token), and a guess is accepted if it is that token. So the text is the same at any width, and
// the seed that `done` reports reproduces it, whether the client gave it or not. For a guess that
// comes without probabilities, as of lookup, rejection sampling accepts with the same chance; see
// verifier.h.
//
// Owned by the engine thread. Memory: see LookupIndex, per live sequence.

#include <array>
#include <memory>
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
  /// `proposer`: beside lookup; may be null.
  Speculator(const SpeculationConfig& config, std::unique_ptr<Proposer> proposer);

  /// Sets `drafted` of the sequences, which are all that decode in the coming step.
  /// `first_tokens_due`: somebody waits for its first token, so that no proposer may catch up now.
  void propose(std::span<Sequence* const> decoding, const StepCost& cost, bool first_tokens_due);
  /// A step has drawn the tokens of `seq` from position `first` on, and verified `drafted` tokens.
  void learn(const Sequence& seq, size_t first, int32_t drafted);
  void forget(const LiveRequest& live);

  /// Until told otherwise every sequence verifies `width` guesses, whatever they are; 0: back to
  /// what pays. For measuring rows before the first request.
  void force(int32_t width) { forced_width_ = width; }

  /// Lets proposers that compute guess for these sequences, so that it is known what that takes.
  /// The guesses are forgotten; each sequence must have grown before the next call.
  void warm_up(std::span<Sequence* const> decoding);
  /// Tokens per time over plain decoding of one sequence, were each guess of a proposer that
  /// computes right with that chance; at least 1.
  double expected_gain(double chance, const StepCost& cost) const;
  void drop_paid_proposer();
  /// Whether somebody guesses at a cost: a small model.
  bool has_paid_proposer() const;

  bool enabled() const { return config_.enabled; }
  size_t num_sequences() const { return states_.size(); }
  void check_integrity() const;

 private:
  static constexpr int64_t kFirstTrial = 512;
  static constexpr int64_t kLastTrial = 8192;
  static constexpr int32_t kMaxTrialAsks = 8;

  struct State {
    Draft draft;  ///< of this step
    size_t proposer = 0;
    std::vector<std::array<Acceptance, kConfidences>> acceptance;  ///< per proposer
    int32_t idle_steps = 0;  ///< since a guess of it was verified
  };

  /// StepCost::rows_us, looked up once per row count and step: a tiny model's step is short enough
  /// to see it.
  class RowsUs {
   public:
    void begin(const StepCost& cost, int32_t plain_rows);
    double operator()(int32_t rows);

   private:
    const StepCost* cost_ = nullptr;
    int32_t first_ = 0;
    std::array<double, kExtraOutputs + 1> known_{};  ///< 0: not looked up yet
  };

  State& state_of(const Sequence& seq);
  void ask_free_proposers();
  void ask_paid_proposer(size_t p, int32_t plain_rows, double catch_up_us);
  double chance(const State& state, size_t proposer, int32_t confidence) const;
  /// The choices as the guesses stand.
  void lay_out_choices();

  const SpeculationConfig config_;
  std::vector<std::unique_ptr<Proposer>> proposers_;
  /// What all sequences taught, per proposer: where a new sequence begins.
  std::vector<std::array<Acceptance, kConfidences>> beliefs_;
  std::unordered_map<const Sequence*, State> states_;
  int32_t forced_width_ = 0;
  int64_t next_trial_ = 0;  ///< step at which a proposer that does not pay is asked all the same
  int64_t trial_every_ = kFirstTrial;
  int32_t trial_asks_ = 0;
  int64_t steps_ = 0;
  RowsUs rows_us_;
  // Scratch.
  std::vector<Sequence*> asked_;
  std::vector<State*> asked_states_;
  std::vector<Draft*> wishes_;
  std::vector<WidthChoice> choices_;
};

}  // namespace hearth::engine
