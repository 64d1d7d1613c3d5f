#include "engine/speculation/width_choice.h"

#include <algorithm>
#include <vector>

#include "kernels/base/numbers.h"
#include "kernels/base/sizes.h"

namespace hearth::engine {
namespace {

/// A smaller gain is within the accuracy of the costs.
constexpr double kWorthwhile = 1.03;
/// Draft tokens less likely than this are ignored.
constexpr double kHopeless = 0.01;

}  // namespace

double choose_widths(std::span<WidthChoice> choices, int32_t plain_rows, int32_t max_extra,
                     const std::function<double(int32_t)>& rows_us, double extra_us) {
  struct Candidate {
    double worth;
    int32_t* width;  ///< that it adds one to
  };
  std::vector<Candidate> candidates;
  // `worth`: of the first one, which is at `place`.
  const auto add = [&](const WidthChoice& choice, double worth, int32_t place, int32_t available,
                       int32_t* width) {
    *width = 0;
    for (int32_t k = 0; k < available && worth >= kHopeless; ++k) {
      candidates.push_back({worth, width});
      worth *= std::min(choice.chance(place + k + 1), 1.0);
    }
  };
  for (WidthChoice& choice : choices) {
    add(choice, std::min(choice.chance(0), 1.0), 0, choice.available, &choice.width);
    for (BranchChoice& branch : choice.branches) {
      double first = std::min({branch.chance, choice.chance(branch.after), 1.0});
      for (int32_t i = 0; i < branch.after; ++i) first *= std::min(choice.chance(i), 1.0);
      add(choice, first, branch.after, branch.available, &branch.width);
    }
  }
  // Stable: the draft tokens of a sequence stay in order, and equal ones in the order of sequences.
  // A branch never comes before the places of the chain that it follows.
  std::ranges::stable_sort(candidates, std::greater{}, &Candidate::worth);
  if (size32(candidates) > std::max(0, max_extra)) candidates.resize(std::max(0, max_extra));
  const double plain = plain_rows / rows_us(plain_rows);
  double best = plain * kWorthwhile;
  size_t taken = 0;
  double tokens = plain_rows;
  for (size_t i = 0; i < candidates.size(); ++i) {
    tokens += candidates[i].worth;
    const double rate = tokens / (rows_us(plain_rows + narrow<int32_t>(i) + 1) + extra_us);
    if (rate <= best) continue;
    best = rate;
    taken = i + 1;
  }
  for (size_t i = 0; i < taken; ++i) ++*candidates[i].width;
  return taken > 0 ? best / plain : 1.0;
}

}  // namespace hearth::engine
