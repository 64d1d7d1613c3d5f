#pragma once
// Says the guesses of a script, alone for nothing or in the place of another proposer's at that
// one's cost: for measurements where acceptance shall be what one says and everything else real.
//
// A draft model that is spoken for keeps no KV of the guesses that came true, since it made others:
// its next step computes the tokens that a real one would have, a few rows more.

#include <memory>

#include "engine/speculation/proposer.h"
#include "engine/speculation/replay_pattern.h"

namespace hearth::engine {

class ScriptProposer final : public Proposer {
 public:
  /// `model`, may be null, guesses for as many tokens as are said. `script` outlives this.
  ScriptProposer(const ReplayScript& script, std::unique_ptr<Proposer> model)
      : script_(script), model_(std::move(model)) {}

  std::string_view name() const override { return "script"; }
  void propose(std::span<Draft* const> drafts, double catch_up_us) override;
  void forget(const Sequence& seq) override;
  bool free() const override { return model_ == nullptr; }
  std::optional<double> propose_us(int32_t sequences, int32_t tokens) const override;
  void check_integrity() const override;

 private:
  const ReplayScript& script_;
  std::unique_ptr<Proposer> model_;
};

}  // namespace hearth::engine
