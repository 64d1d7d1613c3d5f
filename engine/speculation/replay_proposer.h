#pragma once
// A proposer that knows the text and makes some of its drafts wrong by a pattern: for measurements
// and tests with a given acceptance and everything else real.

#include <map>
#include <utility>

#include "engine/speculation/proposer.h"

namespace hearth::engine {

class ReplayProposer final : public Proposer {
 public:
  /// The draft token at position p of a sequence is right if pattern[p % size]; not empty.
  ReplayProposer(std::vector<bool> pattern, int32_t vocab_size);
  /// Each position is right with that chance, from a seed.
  static std::vector<bool> random_pattern(double acceptance, size_t size, uint64_t seed);

  /// The sample's text, from its first generated token on.
  void know(RequestId id, int32_t sample, std::vector<int32_t> output);

  DraftedBy kind() const override { return DraftedBy::kScript; }
  void propose(std::span<Draft* const> drafts, double catch_up_us) override;

 private:
  const std::vector<bool> pattern_;
  const int32_t vocab_size_;
  std::map<std::pair<RequestId, int32_t>, std::vector<int32_t>> outputs_;
};

}  // namespace hearth::engine
