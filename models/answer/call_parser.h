#pragma once
// Parses calls of functions in an answer's text, for any format whose calls are between marks. Text
// that begins like a call but is none, or that calls a function that was not offered, stays text,
// unchanged. A call is reported once its name is known and its arguments have begun.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/answer/answer_piece.h"
#include "models/answer/call_object.h"
#include "models/answer/tool_format.h"

namespace hearth::models {

class CallParser {
 public:
  /// `format` outlives it. `functions`: those that may be called; none: any of a good name.
  CallParser(const ToolFormat& format, std::vector<std::string> functions);

  void push(char c, AnswerPieces* pieces);
  void finish(AnswerPieces* pieces);
  /// Number of calls that have ended.
  int32_t num_ended() const { return num_ended_; }

 private:
  enum class State {
    kText,
    kBare,   ///< of a format without marks: only blanks so far, or blanks behind a call
    kPlain,  ///< text to the end
    kBegin,  ///< behind `open`: what leads to the name or the object
    kObject,
    kBetween,  ///< behind an object of a list
    kName,
    kNameEnd,
    kArguments,
    kClose,
  };

  void text(char c, AnswerPieces* pieces);
  void bare(char c, AnswerPieces* pieces);
  void begin(char c, AnswerPieces* pieces);
  void object(char c, AnswerPieces* pieces);
  void between(char c, AnswerPieces* pieces);
  void function_name(char c, AnswerPieces* pieces);
  void arguments(char c, AnswerPieces* pieces);
  void close(char c, AnswerPieces* pieces);

  void opened();
  void start_object();
  bool offered(std::string_view name) const;
  void announce(const std::string& name, AnswerPieces* pieces);
  /// It is no call: what was kept is text, and `c` follows it.
  void give_up(char c, AnswerPieces* pieces);
  void ended(State next);

  const ToolFormat& format_;
  const std::vector<std::string> functions_;
  std::vector<std::string_view> marks_;  // those that text is searched for
  State state_;
  std::string blanks_;     // at the end of the text so far
  std::string partial_;    // behind them: what may become a mark
  std::string kept_;       // of a call that is not certain yet, all that came
  std::string_view want_;  // of a literal, what is still to come
  bool announced_ = false;
  bool first_text_ = true;  // nothing but blanks since the last call
  std::optional<CallObject> object_;
  std::string name_;
  ValueScanner value_;
  int32_t num_ended_ = 0;
};

}  // namespace hearth::models
