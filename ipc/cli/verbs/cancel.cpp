// hearth cancel: ends one of the caller's requests.

#include <fmt/core.h>

#include "ipc/cli/connect/connection.h"
#include "ipc/cli/terminal/terminal.h"
#include "ipc/cli/verbs/verbs.h"

namespace hearth::cli {

int cancel(const std::string& request_id) {
  std::optional<ipc::Client> client = connect();
  if (!client) return kNoDaemon;
  return show(client->cancel(request_id), false, [](const ipc::CancelReply& reply) {
    write_stdout(terminal_safe(fmt::format("cancelled {}\n", reply.id)));
  });
}

}  // namespace hearth::cli
