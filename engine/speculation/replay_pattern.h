#pragma once
// Decides which draft tokens are right, for measurements and tests with a given acceptance.
//
// As text, PATTERN[/RIVALS][:SEED]:
//   0.8               each draft token is right with that chance
//   0.9,0.8,0.6       the same for the first, second, ... of a step; the last value for all others
//   1101              the draft token at position p is right if digit p % 4 is 1
//   0.6/0.4,0.2       where a draft token is wrong, its first rival is right with a chance of 0.4;
//                     if that is wrong, too, the second with 0.2
// The result at a position depends on the seed (default 11) and the position alone, so that a run
// can be repeated, and a draft token that was wrong is wrong again in the next step.

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
  /// By place among the draft tokens of a step; not empty.
  ReplayPattern(std::vector<double> chances, uint64_t seed);
  /// kInvalidArgument names the mistake and the allowed forms.
  static Result<ReplayPattern> parse(std::string_view text);

  /// For the draft token at `position` of the text, the `place`-th of its step, from 0.
  bool right(size_t position, size_t place) const;
  /// Chances of rivals, by rank; none without them.
  void set_rivals(std::vector<double> chances) { rivals_ = std::move(chances); }
  size_t num_rivals() const { return rivals_.size(); }
  /// The rank of the rival that is right where the draft token at `position` is wrong; num_rivals()
  /// or more: none is.
  size_t right_rival(size_t position) const;

 private:
  std::vector<bool> by_position_;
  std::vector<double> chances_;
  std::vector<double> rivals_;
  uint64_t seed_ = 0;
};

/// The texts that sequences will produce, and drafts of them made wrong by a pattern.
class ReplayScript {
 public:
  ReplayScript(ReplayPattern pattern, int32_t vocab_size);

  /// The sample's text, from its first generated token on.
  void know(RequestId id, int32_t sample, std::vector<int32_t> output);
  /// A draft of the token at `position` of the sequence's text (prompt included); nothing if the
  /// text is not known.
  std::optional<int32_t> draft(const Sequence& seq, size_t position, size_t place) const;
  /// The same for its rival of that rank, which is another token than the draft and other rivals.
  std::optional<int32_t> rival(const Sequence& seq, size_t position, size_t place,
                               size_t rank) const;
  size_t num_rivals() const { return pattern_.num_rivals(); }

 private:
  std::optional<int32_t> truth(const Sequence& seq, size_t position) const;

  ReplayPattern pattern_;
  int32_t vocab_size_;
  std::map<std::pair<RequestId, int32_t>, std::vector<int32_t>> outputs_;
};

}  // namespace hearth::engine
