// hearth load: brings a model into memory.

#include <fmt/core.h>

#include "ipc/cli/answer/loading_status.h"
#include "ipc/cli/answer/model_argument.h"
#include "ipc/cli/connect/connection.h"
#include "ipc/cli/verbs/verbs.h"

namespace hearth::cli {

int load(const Options& options) {
  const Result<std::string> model = loaded_model_argument(options.model);
  if (!model.ok()) return fail(model.error());
  ipc::LoadRequest request{.model = *model};
  if (!options.keep_alive.empty()) {
    const Result<int64_t> ms = parse_keep_alive(options.keep_alive);
    if (!ms.ok()) {
      complain(ms.error().message);
      return kUsage;
    }
    request.keep_alive_ms = *ms;
  }
  if (!options.draft.empty()) request.draft = options.draft;
  std::optional<ipc::Client> client = connect_or_start(options.no_start, options.allow_root);
  if (!client) return kNoDaemon;
  StatusLine status;
  const Result<ipc::LoadReply> reply = client->load(
      request, [&](const ipc::LoadingEvent& event) { status.show(loading_text(event)); });
  status.clear();
  return show(reply, options.json, [](const ipc::LoadReply& loaded) {
    std::string line = loaded.load_ms == 0 ? fmt::format("{} is in memory already", loaded.model)
                                           : fmt::format("{} in memory after {}", loaded.model,
                                                         human_duration(loaded.load_ms));
    line += fmt::format(": weights {}, KV {}", human_bytes(loaded.weight_bytes),
                        human_bytes(loaded.kv_bytes));
    if (!loaded.draft.empty()) line += ", draft model " + loaded.draft;
    line += "\n";
    write_stdout(terminal_safe(line));
  });
}

}  // namespace hearth::cli
