#pragma once
// Prompt lookup: proposes the tokens that followed an earlier occurrence of the text's last tokens.
// Costs a microsecond and no device time.

#include <unordered_map>

#include "engine/speculation/lookup_index.h"
#include "engine/speculation/proposer.h"

namespace hearth::engine {

class LookupProposer final : public Proposer {
 public:
  DraftedBy kind() const override { return DraftedBy::kLookup; }
  void propose(std::span<Draft* const> drafts, double catch_up_us) override;
  void forget(const Sequence& seq) override { indexes_.erase(&seq); }

  size_t num_sequences() const { return indexes_.size(); }

 private:
  std::unordered_map<const Sequence*, LookupIndex> indexes_;
};

}  // namespace hearth::engine
