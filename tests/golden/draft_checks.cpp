#include "tests/golden/draft_checks.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

namespace hearth::golden {

std::vector<int32_t> first_of(const std::vector<int32_t>& tokens, size_t count) {
  return {tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(count)};
}

void check_logits(const std::vector<std::vector<float>>& met, const FamilyModel::Drafts& want) {
  double most = 0, worst = 0;
  for (size_t i = 0; i < met.size(); ++i) {
    REQUIRE(met[i].size() >= want.logits[i].size());
    for (size_t j = 0; j < want.logits[i].size(); ++j) {
      most = std::max(most, std::fabs(want.logits[i][j]));
      worst = std::max(worst, std::fabs(double{met[i][j]} - want.logits[i][j]));
    }
  }
  CHECK(worst < 5e-5 * most);
}

void check_drafts_alone(StepRunner& plain, const std::function<StepRunner()>& make,
                        const std::vector<int32_t>& tokens, const std::vector<int32_t>& drafts,
                        std::span<const int32_t> chunks) {
  StepRunner alone = make();
  const std::vector<std::vector<float>> want = alone.drafts_after(tokens, 96, drafts);
  for (const int32_t chunk : chunks) {
    StepRunner chunked = make();
    CHECK(chunked.drafts_after(tokens, chunk, drafts) == want);
  }
  // What was drafted is overwritten by what follows.
  const std::vector<int32_t> last = {tokens.back()};
  const auto computed = first_of(tokens, tokens.size() - 1);
  plain.feed(0, computed, 96);
  CHECK(alone.feed(0, last, 1) == plain.feed(0, last, 1));
  // Two sequences drafted together, the second of the reversed tokens.
  StepRunner batched = make();
  const std::vector<int32_t> other(computed.rbegin(), computed.rend());
  const std::span<const int32_t> a(computed), b(other);
  const Chunk fronts[] = {{1, b.first(40)}, {0, a.first(40)}};
  batched.step(fronts);
  const Chunk backs[] = {{1, b.subspan(40)}, {0, a.subspan(40)}};
  batched.step(backs);
  const auto rest = static_cast<int32_t>(computed.size()) - 40;
  std::vector<int32_t> rows = {rest - 1, 2 * rest - 1};
  for (size_t i = 0; i < drafts.size(); ++i) {
    const int32_t token = i == 0 ? tokens.back() : drafts[i - 1];
    const Chunk next[] = {{1, {&token, 1}}, {0, {&token, 1}}};
    CHECK(batched.draft(next, rows, static_cast<int32_t>(i)).back() == want[i]);
    rows = {0, 1};
  }
}

}  // namespace hearth::golden
