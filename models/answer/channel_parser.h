#pragma once
// Parses answers in channels (the format "harmony" of gpt-oss): messages, each a header and a body.
//   <|channel|>analysis<|message|>...<|end|><|start|>assistant<|channel|>final<|message|>...
// The channel analysis is reasoning; a header with to=functions.NAME calls that function if it was
// offered; every other body is text.

#include <string>
#include <string_view>
#include <vector>

#include "models/answer/answer_piece.h"

namespace hearth::models {

class ChannelParser {
 public:
  /// `functions`: those that may be called.
  explicit ChannelParser(std::vector<std::string> functions) : functions_(std::move(functions)) {}

  void push(char c, AnswerPieces* pieces);
  /// `cut_short`: an incomplete header is dropped.
  void finish(AnswerPieces* pieces, bool cut_short = false);
  int32_t num_ended() const { return num_ended_; }
  bool reasoning() const {
    return state_ == State::kBody && type_ == AnswerPiece::Type::kReasoning;
  }

 private:
  enum class State {
    kHeader,
    kBody,
    kGap,    ///< after a body: up to the next <|start|>
    kPlain,  ///< not this format: all is text
  };
  void header(char c, AnswerPieces* pieces);
  void body(char c, AnswerPieces* pieces);
  void read_header(AnswerPieces* pieces);
  void end_body();

  const std::vector<std::string> functions_;
  State state_ = State::kHeader;
  std::string header_;   // the part received so far
  std::string partial_;  // the possible beginning of a mark
  AnswerPiece::Type type_ = AnswerPiece::Type::kText;
  int32_t num_ended_ = 0;
};

}  // namespace hearth::models
