#pragma once
// How many draft tokens of each sequence a step verifies. Pure logic.
//
// The value of a row that verifies a draft token is the chance that it and all before it are right;
// its cost is that of one more row in the step. Draft tokens are taken in the order of their value,
// and of all such prefixes the one with the most expected tokens per microsecond wins, or none if
// that is not clearly more than without drafts. So where rows are expensive (a batch that uses all
// of the device) or drafts are bad, nothing is speculated. Branches compete with the places further
// on: one pays where rows are cheap and the chain's own chance falls fast.

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace hearth::engine {

struct BranchChoice {
  int32_t after = 0;      ///< draft tokens of the chain before it
  double chance = 0;      ///< of its first token being right if those were; not above the chain's
  int32_t available = 0;  ///< its draft tokens
  int32_t width = 0;      ///< out: of them, those to verify
};

/// Places of a draft whose chances are known one by one; those further on are as the last of them.
inline constexpr size_t kPlaces = 4;
/// That the draft token at each place is right if those before it were.
using Chances = std::array<double, kPlaces>;
/// The same chance at all places.
constexpr Chances every_place(double chance) { return {chance, chance, chance, chance}; }

struct WidthChoice {
  Chances chances{};
  int32_t available = 0;  ///< draft tokens
  int32_t width = 0;      ///< out: draft tokens to verify
  std::vector<BranchChoice> branches = {};

  double chance(int32_t place) const {
    return chances[place < int32_t{kPlaces} ? place : int32_t{kPlaces} - 1];
  }
};

/// Sets the widths. `rows_us`: duration of a step with that many decode rows; `plain_rows`: rows
/// without drafts; `max_extra`: draft tokens that a step has room for. `extra_us`: added to a step
/// that verifies any. Returns the expected speed relative to plain decoding.
double choose_widths(std::span<WidthChoice> choices, int32_t plain_rows, int32_t max_extra,
                     const std::function<double(int32_t)>& rows_us, double extra_us = 0);

}  // namespace hearth::engine
