// hearth cancel: ends one of the caller's requests, or only its reasoning.

#include <fmt/core.h>

#include "ipc/cli/connect/connection.h"
#include "ipc/cli/terminal/terminal.h"
#include "ipc/cli/verbs/verbs.h"

namespace hearth::cli {

int cancel(const std::string& request_id, bool only_reasoning) {
  std::optional<ipc::Client> client = connect();
  if (!client) return kNoDaemon;
  const auto reply =
      only_reasoning ? client->end_reasoning(request_id) : client->cancel(request_id);
  return show(reply, false, [&](const ipc::CancelReply& done) {
    write_stdout(terminal_safe(
        fmt::format("{} {}\n", only_reasoning ? "ended the reasoning of" : "cancelled", done.id)));
  });
}

}  // namespace hearth::cli
