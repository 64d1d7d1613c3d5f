#pragma once
// Proposes the drafts of a script at no cost, for measurements with a given acceptance and
// everything else real. At the cost of a draft model: DraftModel::replay.

#include <vector>

#include "engine/speculation/proposer.h"
#include "engine/speculation/replay_pattern.h"

namespace hearth::engine {

class ScriptProposer final : public Proposer {
 public:
  /// `script` outlives this.
  explicit ScriptProposer(const ReplayScript& script) : script_(script) {}

  DraftedBy kind() const override { return DraftedBy::kScript; }
  void propose(std::span<Draft* const> drafts, double catch_up_us) override;

 private:
  void append(const Sequence& seq, int32_t first, int32_t end, std::vector<int32_t>* tokens) const;

  const ReplayScript& script_;
};

}  // namespace hearth::engine
