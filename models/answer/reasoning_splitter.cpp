#include "models/answer/reasoning_splitter.h"

#include <algorithm>
#include <utility>

namespace hearth::models {
namespace {

// Longer runs of line breaks are not held back for a mark that may follow.
constexpr size_t kHeldBreaks = 64;

bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

}  // namespace

std::string ReasoningSplitter::push(std::string_view text, AnswerPieces* pieces) {
  std::string rest;
  for (const char c : text) take(c, pieces, &rest);
  return rest;
}

void ReasoningSplitter::take(char c, AnswerPieces* pieces, std::string* rest) {
  switch (state_) {
    case State::kBefore: {
      held_ += c;
      const size_t blanks = std::ranges::find_if_not(held_, is_blank) - held_.begin();
      const std::string_view mark = std::string_view(held_).substr(blanks);
      if (!marks_.begin.empty() && mark == marks_.begin) {
        state_ = State::kInside;
        held_.clear();
      } else if (!std::string_view(marks_.begin).starts_with(mark) || blanks > kHeldBreaks) {
        state_ = State::kRest;
        *rest += std::exchange(held_, {});
      }
      return;
    }
    case State::kInside: return take_inside(c, pieces);
    case State::kAfter:
      if (c == '\n') return;
      state_ = State::kRest;
      [[fallthrough]];
    case State::kRest: *rest += c; return;
  }
}

void ReasoningSplitter::take_inside(char c, AnswerPieces* pieces) {
  if (c == '\n' && !begun_) return;
  begun_ = true;
  held_ += c;
  if (held_.ends_with(marks_.end)) {
    held_.resize(held_.size() - marks_.end.size());
    while (held_.ends_with('\n')) held_.pop_back();
    append_piece(pieces, AnswerPiece::Type::kReasoning, held_);
    held_.clear();
    state_ = State::kAfter;
    return;
  }
  // Hold back a possible beginning of the mark and the line breaks before it.
  size_t held = std::min(held_.size(), marks_.end.size() - 1);
  while (held > 0 && !held_.ends_with(std::string_view(marks_.end).substr(0, held))) --held;
  size_t breaks = 0;
  while (held < held_.size() && held_[held_.size() - held - 1] == '\n' && breaks < kHeldBreaks) {
    ++held;
    ++breaks;
  }
  append_piece(pieces, AnswerPiece::Type::kReasoning,
               std::string_view(held_).substr(0, held_.size() - held));
  held_.erase(0, held_.size() - held);
}

std::string ReasoningSplitter::finish(AnswerPieces* pieces) {
  if (state_ == State::kBefore) return std::exchange(held_, {});
  if (state_ == State::kInside) append_piece(pieces, AnswerPiece::Type::kReasoning, held_);
  held_.clear();
  return {};
}

}  // namespace hearth::models
