#pragma once
// Reads the user's next message, of one or several lines, or the next command.

#include <string>
#include <string_view>

#include "ipc/cli/chat/line_editor.h"

namespace hearth::cli {

struct ChatInput {
  enum class Kind { kMessage, kCommand, kNothing, kEnd };
  Kind kind = Kind::kNothing;
  std::string text{};     ///< the message, or what follows the command's name
  std::string command{};  ///< "retry"
};

/// A line that ends in a backslash continues on the next line; lines between two lines of """ are
/// one message. Ctrl-C drops an unfinished message.
ChatInput read_chat_input(LineEditor& editor, const std::string& prompt);

/// Parses "/retry", "/system Be brief." and so on. "//" begins a message that starts with a slash.
ChatInput parse_chat_line(std::string line);

}  // namespace hearth::cli
