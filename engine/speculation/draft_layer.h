#pragma once
// The model's own layer for drafting (models/decoder/draft_layer.cpp), or an EAGLE-3 head, a DFlash
// drafter or heads that were added to it (eagle3.cpp, dflash.cpp, draft_heads.cpp), as a proposer.
// It continues the final row that a sequence's last token was drawn from, and then its own rows. A
// layer's K and V are in the sequence's blocks, and the target's steps have stored them for all
// tokens but the last; heads have none: it never has to catch up. A DFlash drafter drafts all
// tokens of a sequence in one round, the others one in each. It draws with the request's own
// sampling and noise.
//
// A sequence that had no row in the last step gets no draft: its final row is gone.
//
// Owned by the engine thread.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/cost/step_cost.h"
#include "engine/kv/kv_cache.h"
#include "engine/sampling/sampler.h"
#include "engine/speculation/proposer.h"
#include "engine/speculation/replay_pattern.h"
#include "engine/steps/model_runner.h"
#include "kernels/base/clock.h"

namespace hearth::engine {

class DraftLayer final : public Proposer {
 public:
  /// Draft tokens of a sequence at most.
  static constexpr int32_t kMaxTokens = 4, kMaxTokensOfEagle3 = 8, kMaxTokensOfBlock = 16;

  /// All three outlive this. `runner`: of a model that drafts.
  DraftLayer(ModelRunner& runner, KvCache& kv, const Clock& clock);

  /// From now on it drafts what the script has, if the script knows the text, at its own cost in
  /// time: for measurements. The script outlives it.
  void replay(const ReplayScript* script) { script_ = script; }

  DraftedBy kind() const override {
    if (runner_.info().eagle3) return DraftedBy::kEagle3;
    if (block() > 0) return DraftedBy::kDFlash;
    return heads() ? DraftedBy::kDraftHeads : DraftedBy::kDraftLayer;
  }
  bool free() const override { return false; }
  int32_t max_tokens() const override {
    if (runner_.info().eagle3) return kMaxTokensOfEagle3;
    if (block() > 0) return std::min(kMaxTokensOfBlock, block());
    return heads() ? std::min(kMaxTokens, runner_.info().draft_heads) : kMaxTokens;
  }
  /// `catch_up_us` of 0: other sequences need blocks, so a draft gets none beyond those held.
  void propose(std::span<Draft* const> drafts, double catch_up_us) override;
  std::optional<double> propose_us(int32_t sequences, int32_t tokens) const override;

 private:
  struct Active {
    Draft* draft;
    int32_t wanted;  ///< draft tokens
    int32_t row;     ///< that the next round continues
  };

  bool heads() const { return runner_.info().draft_heads > 0; }
  int32_t block() const { return runner_.info().draft_block; }
  int32_t reserve(Sequence& seq, int32_t wanted, bool more_blocks);
  void begin(std::span<Draft* const> drafts, bool more_blocks);
  double rounds_us(int32_t sequences, int32_t tokens) const;
  void wish(const Sequence& seq, int32_t position);
  void run_round(int32_t round);
  void run_block();
  std::optional<int32_t> draw(Draft& draft, int32_t output_row);
  std::span<float> logits(int32_t output_row);

  ModelRunner& runner_;
  KvCache& kv_;
  const Clock& clock_;
  const ReplayScript* script_ = nullptr;
  Sampler sampler_;
  StepCost cost_;
  double overhead_us_ = 0;  ///< of a call, in addition to its rounds
  // Scratch.
  StepPlan plan_;
  std::vector<Active> active_;
  std::vector<int32_t> rows_;
  std::vector<RowWish> wishes_;
  std::vector<int32_t> history_;
  std::vector<float> all_logits_;  ///< of the vocabulary, if drafts are of some tokens alone
};

}  // namespace hearth::engine
