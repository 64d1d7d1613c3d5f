#include "engine/sampling/reasoning_progress.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "models/tokenizer/tokenizer.h"

namespace hearth::engine {
namespace {

/// The length of the longest proper beginning of `text` with which it ends, too.
size_t border(std::string_view text) {
  size_t size = text.empty() ? 0 : text.size() - 1;
  while (size > 0 && !text.ends_with(text.substr(0, size))) --size;
  return size;
}

/// How many tokens at the end of `output` are the beginning of `closing`, which is not complete.
size_t begun(std::span<const int32_t> output, std::span<const int32_t> closing) {
  size_t size = std::min(output.size(), closing.size() - 1);
  while (size > 0 && !std::ranges::equal(output.last(size), closing.first(size))) --size;
  return size;
}

}  // namespace

std::optional<int32_t> ReasoningProgress::forced(const ReasoningBound& bound,
                                                 std::span<const int32_t> output, bool end_now) {
  if (phase_ == Phase::kAfter) return std::nullopt;
  if (phase_ == Phase::kNew) phase_ = bound.open ? Phase::kInside : Phase::kBefore;
  while (true) {
    const bool full = std::cmp_greater_equal(num_inside_, bound.max_tokens);
    if (phase_ == Phase::kInside && full) phase_ = Phase::kClosing;
    if (num_taken_ >= output.size()) break;
    take(bound, output[num_taken_++]);
  }
  if (phase_ == Phase::kInside && end_now) {
    phase_ = Phase::kClosing;
    closed_ = begun(output, bound.closing);  // a sample that resumes in the middle of it
  }
  if (phase_ != Phase::kClosing) return std::nullopt;
  return bound.closing[closed_];
}

void ReasoningProgress::take(const ReasoningBound& bound, int32_t token) {
  if (phase_ == Phase::kClosing) {
    if (++closed_ == bound.closing.size()) phase_ = Phase::kAfter;
    return;
  }
  const bool was_inside = phase_ == Phase::kInside;
  const auto mark = std::ranges::find(bound.marks, token, &std::pair<int32_t, std::string>::first);
  const std::string_view text =
      mark != bound.marks.end() ? std::string_view(mark->second) : bound.tokenizer->piece(token);
  for (const char c : text) take_byte(bound, c);
  if (was_inside && phase_ == Phase::kInside) ++num_inside_;
}

void ReasoningProgress::take_byte(const ReasoningBound& bound, char c) {
  if (phase_ == Phase::kBefore) {
    const bool blank = c == ' ' || c == '\n' || c == '\r' || c == '\t';
    if (matched_ == 0 && blank) return;
    if (matched_ >= bound.begin.size() || bound.begin[matched_] != c) {
      phase_ = Phase::kAfter;
    } else if (++matched_ == bound.begin.size()) {
      phase_ = Phase::kInside;
      matched_ = 0;
    }
    return;
  }
  if (phase_ != Phase::kInside) return;
  const std::string_view end = bound.end;
  while (matched_ > 0 && end[matched_] != c) matched_ = border(end.substr(0, matched_));
  if (end[matched_] == c && ++matched_ == end.size()) phase_ = Phase::kAfter;
}

}  // namespace hearth::engine
