#pragma once
// A proposer that knows what will be said and spoils it by a pattern: for measurements and tests,
// where acceptance shall be what one says and everything else real.

#include <map>
#include <utility>

#include "engine/speculation/proposer.h"

namespace hearth::engine {

class ReplayProposer final : public Proposer {
 public:
  /// The guess of a sequence's token at position p is right if pattern[p % size]; not empty.
  ReplayProposer(std::vector<bool> pattern, int32_t vocab_size);
  /// Each position right with that chance, from a seed.
  static std::vector<bool> random_pattern(double acceptance, size_t size, uint64_t seed);

  /// What the sample will say, from its first generated token on.
  void know(RequestId id, int32_t sample, std::vector<int32_t> output);

  std::string_view name() const override { return "replay"; }
  void propose(std::span<Draft* const> drafts, double catch_up_us) override;

 private:
  const std::vector<bool> pattern_;
  const int32_t vocab_size_;
  std::map<std::pair<RequestId, int32_t>, std::vector<int32_t>> outputs_;
};

}  // namespace hearth::engine
