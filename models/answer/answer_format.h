#pragma once
// How a model's answers are written, found out from its chat template: what it makes of a message
// that calls a function must be what one of the known formats reads back as that call; where it
// makes nothing of one, its own text must name a format's marks. Nothing else is taken for a
// format.

#include <string>

#include "models/answer/reasoning_splitter.h"
#include "models/answer/tool_format.h"
#include "models/template/chat_template.h"

namespace hearth::models {

struct AnswerFormat {
  const ToolFormat* tools = nullptr;  ///< null: see `problem`
  std::string problem;                ///< why calls are not read, in words
  bool arguments_as_text = false;     ///< the template wants the arguments of calls as JSON text
  bool null_content = false;          ///< and a message that calls to have the content null
  ReasoningMarks reasoning;
  bool channels = false;

  /// Control tokens whose text belongs to the answer here.
  std::vector<std::string> marks() const;
};

/// Of the template that is used with tools, or without. A few renderings.
AnswerFormat find_answer_format(const ChatTemplates& templates, bool with_tools,
                                const ChatSurroundings& surroundings);

/// Whether a prompt that ends so has begun the reasoning of the answer.
bool reasoning_is_open(const ReasoningMarks& marks, std::string_view prompt);

}  // namespace hearth::models
