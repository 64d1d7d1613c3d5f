#pragma once
// Detects the format of a model's answers from its chat template. The template's rendering of a
// message that calls a function must be readable as that call by one of the known formats. If the
// template renders no calls, its own text must contain a format's marks. Otherwise no format is
// assumed.

#include <optional>
#include <string>

#include "models/answer/reasoning_splitter.h"
#include "models/answer/tool_format.h"
#include "models/template/chat_template.h"

namespace hearth::models {

struct AnswerFormat {
  const ToolFormat* tools = nullptr;  ///< null: see `problem`
  std::string problem;                ///< why calls are not read, in words
  bool arguments_as_text = false;     ///< the template expects the arguments of calls as JSON text
  bool null_content = false;          ///< and the content of a message with calls to be null
  ReasoningMarks reasoning;
  bool channels = false;
  /// Members of the conversation that make the template ask for no reasoning, such as
  /// "enable_thinking":false; empty: it asks for none anyway; absent: it has no way to.
  std::optional<std::string> reasoning_off;
  std::string reasoning_on;  ///< the same for reasoning; empty: as it does anyway

  /// Control tokens whose text is part of the answer in this format.
  std::vector<std::string> marks() const;
};

/// The format of the template that is used with tools, or without. Takes a few renderings.
AnswerFormat find_answer_format(const ChatTemplates& templates, bool with_tools,
                                const ChatSurroundings& surroundings);

/// Whether the end of `prompt` opens the answer's reasoning.
bool reasoning_is_open(const ReasoningMarks& marks, std::string_view prompt);

}  // namespace hearth::models
