#pragma once
// One answer on its way to the screen: reasoning dimmed, text as it is.

#include <optional>
#include <string>
#include <string_view>

#include "ipc/cli/terminal.h"
#include "ipc/client/client.h"

namespace hearth::cli {

struct ChatAnswer {
  std::string text;
  std::string reasoning;
  std::optional<ipc::DoneEvent> done;
  std::optional<Error> error;
};

/// Streams the answer to a request that was started until it ends. Ctrl-C cancels it, and what came
/// is kept; a second Ctrl-C while that is under way ends the program.
ChatAnswer stream_answer(ipc::Client& client, const ipc::GenerateRequest& request,
                         bool show_reasoning);

}  // namespace hearth::cli
