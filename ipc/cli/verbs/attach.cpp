// hearth attach shows a request's answer again; hearth fork continues from a request.

#include "ipc/cli/answer/stream_printer.h"
#include "ipc/cli/connect/connection.h"
#include "ipc/cli/terminal/interrupt.h"
#include "ipc/cli/terminal/terminal.h"
#include "ipc/cli/verbs/verbs.h"

namespace hearth::cli {

int attach(const AttachOptions& options) {
  catch_interrupts();
  std::optional<ipc::Client> client = connect();
  if (!client) return kNoDaemon;
  const Result<std::string> id = client->attach({.id = options.id, .from = options.from});
  if (!id.ok()) return fail(id.error());
  StreamPrinter printer({.json = options.json, .ids = options.ids, .stats = options.stats});
  return follow(*client, *id, printer, OnInterrupt::kLeave);
}

int fork_request(const AttachOptions& options) {
  catch_interrupts();
  std::optional<ipc::Client> client = connect();
  if (!client) return kNoDaemon;
  const Result<std::string> id = client->fork({.id = options.id,
                                               .sample = options.sample,
                                               .from = options.from,
                                               .n = options.n,
                                               .max_tokens = options.max_tokens,
                                               .seed = options.seed,
                                               .detach = false});
  if (!id.ok()) return fail(id.error());
  StreamPrinter printer({.json = options.json, .ids = options.ids, .stats = options.stats});
  return follow(*client, *id, printer, OnInterrupt::kCancel);
}

}  // namespace hearth::cli
