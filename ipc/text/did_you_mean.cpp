#include "ipc/text/did_you_mean.h"

#include <algorithm>
#include <vector>

namespace hearth::ipc {
namespace {

constexpr size_t kMaxWord = 64;
constexpr size_t kLeastPrefix = 3;

std::string_view without_dashes(std::string_view word) {
  word.remove_prefix(std::min(word.find_first_not_of('-'), word.size()));
  return word;
}

/// Source: Damerau 1964; the restricted distance, by dynamic programming.
size_t edits(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace

std::string nearest_word(std::string_view word, std::span<const std::string> candidates) {
  const std::string_view bare = without_dashes(word);
  if (bare.empty() || bare.size() > kMaxWord) return "";
  std::string best;
  for (const std::string& each : candidates) {
    const bool begins =
        bare.size() >= kLeastPrefix && without_dashes(each).starts_with(bare) && each != word;
    if (begins && (best.empty() || each.size() < best.size())) best = each;
  }
  if (!best.empty()) return best;
  size_t fewest = bare.size() <= 4 ? 1 : 2;
  for (const std::string& each : candidates) {
    if (each.size() > kMaxWord) continue;
    const size_t count = edits(bare, without_dashes(each));
    if (count > fewest || (count == fewest && !best.empty())) continue;
    fewest = count;
    best = each;
  }
  return best;
}

std::string did_you_mean(std::string_view word) {
  return word.empty() ? "" : "; did you mean " + std::string(word) + "?";
}

}  // namespace hearth::ipc
