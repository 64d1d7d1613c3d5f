#include "engine/speculation/width_choice.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace hearth::engine {
namespace {

/// Less than this is within what the costs are known to.
constexpr double kWorthwhile = 1.03;
/// A guess less likely than this is no longer looked at.
constexpr double kHopeless = 0.01;

}  // namespace

double choose_widths(std::span<WidthChoice> choices, int32_t plain_rows, int32_t max_extra,
                     const std::function<double(int32_t)>& rows_us, double extra_us) {
  struct Guess {
    double worth;
    size_t owner;
  };
  std::vector<Guess> guesses;
  for (size_t i = 0; i < choices.size(); ++i) {
    choices[i].width = 0;
    double worth = 1;
    for (int32_t k = 0; k < choices[i].available; ++k) {
      worth *= std::min(choices[i].chance, 1.0);
      if (worth < kHopeless) break;
      guesses.push_back({worth, i});
    }
  }
  // Stable: a sequence's guesses stay in their order, equal ones in that of the sequences.
  std::ranges::stable_sort(guesses, std::greater{}, &Guess::worth);
  if (guesses.size() > static_cast<size_t>(std::max(0, max_extra))) {
    guesses.resize(std::max(0, max_extra));
  }
  const double plain = plain_rows / rows_us(plain_rows);
  double best = plain * kWorthwhile;
  size_t taken = 0;
  double tokens = plain_rows;
  for (size_t i = 0; i < guesses.size(); ++i) {
    tokens += guesses[i].worth;
    const double rate = tokens / (rows_us(plain_rows + static_cast<int32_t>(i) + 1) + extra_us);
    if (rate <= best) continue;
    best = rate;
    taken = i + 1;
  }
  for (size_t i = 0; i < taken; ++i) ++choices[guesses[i].owner].width;
  return taken > 0 ? best / plain : 1.0;
}

}  // namespace hearth::engine
