#pragma once
// Says the guesses of a script for nothing: for measurements where acceptance shall be what one
// says and everything else real. At a draft model's cost: DraftModel::replay.

#include "engine/speculation/proposer.h"
#include "engine/speculation/replay_pattern.h"

namespace hearth::engine {

class ScriptProposer final : public Proposer {
 public:
  /// `script` outlives this.
  explicit ScriptProposer(const ReplayScript& script) : script_(script) {}

  std::string_view name() const override { return "script"; }
  void propose(std::span<Draft* const> drafts, double catch_up_us) override;

 private:
  const ReplayScript& script_;
};

}  // namespace hearth::engine
