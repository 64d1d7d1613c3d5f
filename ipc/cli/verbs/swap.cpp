// hearth swap: loads a model, then points a role at it.

#include <fmt/core.h>

#include "ipc/cli/answer/loading_status.h"
#include "ipc/cli/answer/model_argument.h"
#include "ipc/cli/connect/connection.h"
#include "ipc/cli/verbs/verbs.h"

namespace hearth::cli {

int swap(const Options& options) {
  const Result<std::string> model = loaded_model_argument(options.model);
  if (!model.ok()) return fail(model.error());
  std::optional<ipc::Client> client = connect_or_start(options.no_start, options.allow_root);
  if (!client) return kNoDaemon;
  StatusLine status;
  const Result<ipc::SwapReply> reply =
      client->swap({.role = options.role, .model = *model},
                   [&](const ipc::LoadingEvent& event) { status.show(loading_text(event)); });
  status.clear();
  return show(reply, options.json, [](const ipc::SwapReply& swapped) {
    write_stdout(terminal_safe(
        fmt::format("{} is {} now ({} before)\n", swapped.role, swapped.model, swapped.previous)));
  });
}

}  // namespace hearth::cli
