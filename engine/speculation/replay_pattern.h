#pragma once
// Which guesses shall be right, where that is said and not found out: for measurements and tests.
//
// As text, PATTERN[:SEED]:
//   0.8               each guess is right with that chance
//   0.9,0.8,0.6       the first, second, ... guess of a step is; the last chance holds for the rest
//   1101              the guess of the token at position p is right if digit p % 4 is 1
// A position's luck follows from the seed (default 11) and the position alone, so that a run can be
// repeated, and a guess that was wrong is wrong again in the next step.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/scheduling/sequence.h"
#include "kernels/base/result.h"

namespace hearth::engine {

class ReplayPattern {
 public:
  /// By position; not empty. Implicit: a row of bits is a pattern.
  ReplayPattern(std::vector<bool> by_position);
  /// By place among the guesses of a step; not empty.
  ReplayPattern(std::vector<double> chances, uint64_t seed);
  /// kInvalidArgument says what was wrong and what is wanted.
  static Result<ReplayPattern> parse(std::string_view text);

  /// Of the guess of the token at `position` of the text, the `place`-th of its step from 0.
  bool right(size_t position, size_t place) const;

 private:
  std::vector<bool> by_position_;
  std::vector<double> chances_;
  uint64_t seed_ = 0;
};

/// What sequences will say, and the guesses of it, spoiled by a pattern.
class ReplayScript {
 public:
  ReplayScript(ReplayPattern pattern, int32_t vocab_size);

  /// What the sample will say, from its first generated token on.
  void know(RequestId id, int32_t sample, std::vector<int32_t> output);
  /// Of the token at `position` of the sequence's text (prompt included); nothing where what it
  /// says is not known.
  std::optional<int32_t> guess(const Sequence& seq, size_t position, size_t place) const;

 private:
  ReplayPattern pattern_;
  int32_t vocab_size_;
  std::map<std::pair<RequestId, int32_t>, std::vector<int32_t>> outputs_;
};

}  // namespace hearth::engine
