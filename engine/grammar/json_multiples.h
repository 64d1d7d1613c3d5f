#pragma once
// Grammars for the texts of multiples of a number.

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "engine/grammar/grammar.h"
#include "engine/grammar/rule_set.h"

namespace hearth::engine {

/// Multiples are written digit by digit. What may follow some digits depends on how many digits are
/// left and on the remainder so far, so such a pair is a rule; those from which no multiple in the
/// range is left are none. Powers of ten in the number make remainders alike, so 86400 needs few
/// rules; a prime needs about as many for each digit as its size.
class Multiples {
 public:
  /// Rules of one number. A range that needs more is narrowed to its multiples next to the bound
  /// that is given, or next to 0.
  static constexpr size_t kMostRules = 5000;

  /// Of `of` / 10^`places`, written with so many decimals. 0 < `of`, 10^`places` <= kMostInteger.
  Multiples(RuleSet& rules, int64_t of, int places);

  /// Those from low to high (both in units of 10^-`places`), or, without a bound, with at most 15
  /// digits. Null: there are none.
  Result<PiecePtr> between(std::optional<int64_t> low, std::optional<int64_t> high);

 private:
  /// Of numbers of one length, what they must lie between.
  struct Range {
    int64_t low = 0, high = 0;
  };

  bool fits(int64_t low, int64_t high);
  bool has_any(int64_t low, int64_t high) const;
  /// Whether a multiple of the range begins with `digits`, which `left` more follow.
  bool is_alive(const Range& range, int64_t digits, int left) const;
  /// The digits left and the remainder, if all numbers that begin so are in the range: what follows
  /// depends on nothing else.
  std::optional<std::pair<int, int64_t>> shared_key(const Range& range, int64_t digits,
                                                    int left) const;
  /// Counts the rules that after() would make.
  void count_after(const Range& range, int64_t digits, int left);
  Result<PiecePtr> after(const Range& range, int64_t digits, int left);
  Result<PiecePtr> naturals(int64_t low, int64_t high);
  /// The parts of a range whose numbers have equally many digits, and how many.
  std::vector<std::pair<Range, int>> lengths(int64_t low, int64_t high) const;

  RuleSet& rules_;
  const int64_t of_;
  const int places_;
  std::map<std::pair<int, int64_t>, PiecePtr> shared_;  ///< while counting, null
  size_t counted_ = 0;
};

}  // namespace hearth::engine
