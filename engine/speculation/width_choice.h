#pragma once
// How many guesses of each sequence a step verifies. Pure logic.
//
// A row that verifies a guess is worth the chance that it and all before it are right; it costs
// what one more row costs the step. Guesses are taken in the order of their worth, and of all such
// prefixes the one with the most expected tokens per microsecond wins; none, where that is not
// clearly more than without. So where rows are dear (a batch that computes as fast as the device
// can) or guesses are bad, nothing is speculated.

#include <cstdint>
#include <functional>
#include <span>

namespace hearth::engine {

struct WidthChoice {
  double chance = 0;      ///< of a guess being right when those before it were
  int32_t available = 0;  ///< guesses there are
  int32_t width = 0;      ///< out: guesses to verify
};

/// Sets the widths. `rows_us`: what a step of so many decode rows takes; `plain_rows`: rows without
/// any guess; `max_extra`: guesses that a step has room for. `extra_us`: what the step costs beside
/// its rows once it verifies anything. Returns the expected gain: tokens per time over plain.
double choose_widths(std::span<WidthChoice> choices, int32_t plain_rows, int32_t max_extra,
                     const std::function<double(int32_t)>& rows_us, double extra_us = 0);

}  // namespace hearth::engine
