#pragma once
// Parses calls of functions in an answer's text, for any format whose calls are between marks. Text
// that only begins like a call, or calls a function that was not offered, stays unchanged text. A
// call is reported once its name is known and its arguments have begun.

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/answer/answer_piece.h"
#include "models/answer/argument_reader.h"
#include "models/answer/call_object.h"
#include "models/answer/tool_format.h"

namespace hearth::models {

class CallParser {
 public:
  /// `format` outlives it. `functions`: those that may be called; empty: any with a valid name.
  CallParser(const ToolFormat& format, std::vector<OfferedFunction> functions);

  void push(char c, AnswerPieces* pieces);
  /// What a possible call is that the text ends in.
  enum class Held {
    kText,
    kLikelyCall,  ///< a call, if it has its mark; drops it
    kCall,        ///< a call, which is dropped
  };
  void finish(AnswerPieces* pieces, Held held = Held::kText);
  /// Number of calls that have ended.
  int32_t num_ended() const { return num_ended_; }

 private:
  enum class State {
    kText,
    kBare,   ///< a format without marks: only blanks so far, or only blanks since a call
    kPlain,  ///< text to the end
    kBegin,  ///< after `open`: the text that precedes the name or the object
    kObject,
    kBetween,  ///< after an object of a list
    kName,
    kCallId,
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
  /// It is not a call: the kept bytes are text, followed by `c`.
  void give_up(char c, AnswerPieces* pieces);
  void ended(State next);
  bool is_dropped(Held held) const;

  const ToolFormat& format_;
  const std::vector<OfferedFunction> functions_;
  std::vector<std::string_view> marks_;  // that text is searched for
  State state_;
  std::string blanks_;     // at the end of the text so far
  std::string partial_;    // after the blanks: the possible beginning of a mark
  std::string kept_;       // all bytes of a possible call, until it is certain
  std::string_view want_;  // the rest of a literal that must follow
  bool announced_ = false;
  bool first_text_ = true;  // only blanks since the last call
  std::optional<CallObject> object_;
  std::string name_;
  OfferedFunction called_;  // outlives its reader
  std::unique_ptr<ArgumentReader> arguments_;
  int32_t num_ended_ = 0;
};

}  // namespace hearth::models
