#pragma once
// Separates the reasoning at the beginning of an answer, between two marks, from the text after it.
// Line breaks next to the marks belong to neither.

#include <string>
#include <string_view>

#include "models/answer/answer_piece.h"

namespace hearth::models {

struct ReasoningMarks {
  std::string begin, end;  ///< empty: there are none
  bool empty() const { return end.empty(); }
  bool operator==(const ReasoningMarks&) const = default;
};

class ReasoningSplitter {
 public:
  /// `open`: the prompt has already begun it.
  ReasoningSplitter(ReasoningMarks marks, bool open)
      : marks_(std::move(marks)),
        state_(marks_.empty() ? State::kRest
               : open         ? State::kInside
                              : State::kBefore) {}

  /// Appends reasoning to `pieces` and returns the rest.
  std::string push(std::string_view text, AnswerPieces* pieces);
  std::string finish(AnswerPieces* pieces);
  bool inside() const { return state_ == State::kInside; }

 private:
  enum class State {
    kBefore,  ///< only blanks and part of the mark so far
    kInside,
    kAfter,  ///< only line breaks since the end mark
    kRest,
  };
  void take(char c, AnswerPieces* pieces, std::string* rest);
  void take_inside(char c, AnswerPieces* pieces);

  const ReasoningMarks marks_;
  State state_;
  std::string held_;
  bool begun_ = false;  // the reasoning has something other than line breaks
};

}  // namespace hearth::models
