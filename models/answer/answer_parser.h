#pragma once
// Parses an answer's text as it arrives into text, reasoning and calls of functions. The joined
// output depends on the text alone and not on how it was divided, and contains all text except
// marks. Not thread-safe.

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/answer/answer_piece.h"
#include "models/answer/call_parser.h"
#include "models/answer/channel_parser.h"
#include "models/answer/reasoning_splitter.h"
#include "models/answer/tool_format.h"

namespace hearth::models {

/// What to parse in one answer.
struct AnswerShape {
  const ToolFormat* tools = nullptr;       ///< null: no calls
  std::vector<OfferedFunction> functions;  ///< that may be called
  bool one_call = false;                   ///< the answer ends with its first call
  bool must_call = false;                  ///< after reasoning the answer consists of calls
  ReasoningMarks reasoning;
  bool reasoning_open = false;  ///< the prompt has begun it
  bool channels = false;        ///< the format "harmony", with or without calls

  /// Whether there is anything to parse.
  bool any() const { return tools != nullptr || channels || !reasoning.empty(); }
};

class AnswerParser {
 public:
  explicit AnswerParser(const AnswerShape& shape);

  /// Appends to `pieces`. Once ended() it is ignored.
  void push(std::string_view text, AnswerPieces* pieces);
  /// The text is complete: appends what was held back. `cut_short`: by a bound, not by the model.
  /// Then the beginning of a call is dropped instead.
  void finish(AnswerPieces* pieces, bool cut_short = false);

  /// The one call that was allowed is complete.
  bool ended() const { return one_call_ && num_calls_ended() > 0; }
  bool reasoning() const;

 private:
  int32_t num_calls_ended() const;

  const bool one_call_;
  const bool must_call_;
  std::optional<ReasoningSplitter> splitter_;
  std::optional<CallParser> calls_;
  std::optional<ChannelParser> channels_;
};

}  // namespace hearth::models
