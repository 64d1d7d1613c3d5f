// Grammars for the texts of numbers in a range.

#include <algorithm>
#include <cmath>
#include <string>

#include "engine/grammar/json_pieces.h"
#include "kernels/base/numbers.h"

namespace hearth::engine {
namespace {

PiecePtr digits(size_t count) {
  const auto n = narrow<int32_t>(count);
  return repeat_piece(digit_piece(), n, n);
}

/// Digits of one length, not below (above) those of `bound` from `at` on.
PiecePtr from_bound(std::string_view bound, size_t at, bool up) {
  if (at == bound.size()) return nothing_piece();
  const uint32_t here = bound[at];
  std::vector<PiecePtr> out = {
      seq_piece({chars_piece({{here, here}}), from_bound(bound, at + 1, up)})};
  if (up ? here < '9' : here > '0') {
    const CharRanges rest = up ? CharRanges{{here + 1, '9'}} : CharRanges{{'0', here - 1}};
    out.push_back(seq_piece({chars_piece(rest), digits(bound.size() - at - 1)}));
  }
  return any_piece(std::move(out));
}

PiecePtr between(std::string_view low, std::string_view high, size_t at) {
  if (at == low.size()) return nothing_piece();
  const uint32_t a = low[at], b = high[at];
  if (a == b) return seq_piece({chars_piece({{a, a}}), between(low, high, at + 1)});
  std::vector<PiecePtr> out = {seq_piece({chars_piece({{a, a}}), from_bound(low, at + 1, true)}),
                               seq_piece({chars_piece({{b, b}}), from_bound(high, at + 1, false)})};
  if (a + 1 < b) {
    out.push_back(seq_piece({chars_piece({{a + 1, b - 1}}), digits(low.size() - at - 1)}));
  }
  return any_piece(std::move(out));
}

/// 0 <= low <= high.
PiecePtr natural_range(int64_t low, int64_t high) {
  std::vector<PiecePtr> out;
  while (low <= high) {
    const std::string a = std::to_string(low);
    const int64_t same_length = static_cast<int64_t>(std::pow(10.0, as_double(a.size()))) - 1;
    const int64_t last = std::min(high, same_length);
    out.push_back(between(a, std::to_string(last), 0));
    low = last + 1;
  }
  return any_piece(std::move(out));
}

}  // namespace

PiecePtr integer_range(int64_t low, int64_t high) {
  std::vector<PiecePtr> out;
  if (high >= 0) out.push_back(natural_range(std::max<int64_t>(low, 0), high));
  if (low < 0) {
    out.push_back(
        seq_piece({text_piece("-"),
                   natural_range(std::max<int64_t>(1, -std::min<int64_t>(high, -1)), -low)}));
  }
  return any_piece(std::move(out));
}

PiecePtr real_range(int64_t low, int64_t high, bool low_in, bool high_in, int decimals) {
  const auto zeros = seq_piece({text_piece("."), repeat_piece(text_piece("0"), 1, decimals)});
  const int32_t few = std::min(decimals - 1, 4);  // digits after the first that is not 0
  const auto not_zero =
      seq_piece({text_piece("."), repeat_piece(text_piece("0"), 0, decimals - 1 - few),
                 chars_piece({{'1', '9'}}), repeat_piece(digit_piece(), 0, few)});
  std::vector<PiecePtr> out;
  const auto whole = [](int64_t n) { return text_piece(std::to_string(n)); };
  if (low == high) {
    if (low_in && high_in) out.push_back(seq_piece({whole(low), optional_piece(zeros)}));
    return any_piece(std::move(out));
  }
  if (low_in) out.push_back(seq_piece({whole(low), optional_piece(zeros)}));
  out.push_back(seq_piece({whole(low), not_zero}));
  if (low + 1 < high) {
    out.push_back(seq_piece(
        {natural_range(low + 1, high - 1),
         optional_piece(seq_piece({text_piece("."), repeat_piece(digit_piece(), 1, decimals)}))}));
  }
  if (high_in) out.push_back(seq_piece({whole(high), optional_piece(zeros)}));
  return any_piece(std::move(out));
}

}  // namespace hearth::engine
