// hearth unload: takes a model out of memory once its requests have ended, or lets it sleep.

#include "ipc/cli/answer/loading_status.h"
#include "ipc/cli/answer/model_argument.h"
#include "ipc/cli/connect/connection.h"
#include "ipc/cli/verbs/verbs.h"

namespace hearth::cli {

int unload(const Options& options) {
  const Result<std::string> model = model_argument(options.model);
  if (!model.ok()) return fail(model.error());
  std::optional<ipc::Client> client = connect();
  if (!client) return kNoDaemon;
  StatusLine status;
  const Result<ipc::UnloadReply> reply =
      client->unload({.model = *model, .adapter = options.adapter, .keep = options.keep},
                     [&](const ipc::LoadingEvent& event) { status.show(loading_text(event)); });
  status.clear();
  return show(reply, options.json, [&](const ipc::UnloadReply& gone) {
    const std::string_view now = gone.asleep         ? " asleep\n"
                                 : gone.was_resident ? " unloaded\n"
                                                     : " was not in memory\n";
    std::string name = options.adapter.empty() ? gone.model : options.adapter;
    write_stdout(terminal_safe(name.append(now)));
  });
}

}  // namespace hearth::cli
