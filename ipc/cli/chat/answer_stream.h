#pragma once
// Prints one streamed answer: reasoning dimmed, text as it is.

#include <optional>
#include <string>
#include <string_view>

#include "ipc/cli/terminal/terminal.h"
#include "ipc/client/client.h"

namespace hearth::cli {

struct ChatAnswer {
  std::string text;
  std::string reasoning;
  std::optional<ipc::DoneEvent> done;
  std::optional<Error> error;
};

/// Prints the answer to a started request until it ends. Ctrl-C cancels it and keeps the text so
/// far; a second Ctrl-C meanwhile ends the program.
ChatAnswer stream_answer(ipc::Client& client, const ipc::GenerateRequest& request,
                         bool show_reasoning);

}  // namespace hearth::cli
