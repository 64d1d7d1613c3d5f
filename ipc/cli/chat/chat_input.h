#pragma once
// What the user says next: a message of one line or several, or a command.

#include <string>
#include <string_view>

#include "ipc/cli/chat/line_editor.h"

namespace hearth::cli {

struct ChatInput {
  enum class Kind { kMessage, kCommand, kNothing, kEnd };
  Kind kind = Kind::kNothing;
  std::string text{};     ///< of a message; of a command, what follows its name
  std::string command{};  ///< "retry"
};

/// A line that ends in a backslash goes on in the next one; lines between two of """ are one
/// message. Ctrl-C drops what was begun.
ChatInput read_chat_input(LineEditor& editor, const std::string& prompt);

/// "/retry", "/system Be brief." and so on; "//" in front of a message that begins with a slash.
ChatInput parse_chat_line(std::string line);

}  // namespace hearth::cli
