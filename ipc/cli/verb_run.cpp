// hearth run: a prompt in, text out.

#include <fmt/core.h>

#include <string>
#include <vector>

#include "ipc/cli/connection.h"
#include "ipc/cli/input.h"
#include "ipc/cli/interrupt.h"
#include "ipc/cli/run_fields.h"
#include "ipc/cli/stream_printer.h"
#include "ipc/cli/terminal.h"
#include "ipc/cli/verbs.h"

namespace hearth::cli {
namespace {

/// Shows its id and leaves, once the daemon has shown that it has it.
int leave(ipc::Client& client, const std::string& id) {
  while (true) {
    if (interrupted()) return kInterrupted;
    const Result<std::optional<ipc::Arrival>> next = client.next(50);
    if (!next.ok()) return fail(next.error());
    if (!next->has_value()) continue;
    const auto* event = std::get_if<ipc::Event>(&(*next)->what);
    if (const auto* error = event == nullptr ? nullptr : std::get_if<ipc::ErrorEvent>(event)) {
      return fail(error->error);
    }
    write_stdout(id + "\n");
    return kOk;
  }
}

}  // namespace

int run(const RunOptions& options) {
  Result<std::string> prompt = read_text(options.prompt_words, options.file);
  if (!prompt.ok()) {
    complain("prompt: " + prompt.error().message);
    return kUsage;
  }
  Result<ipc::GenerateRequest> request = request_from_flags(options.model, *prompt, options.fields);
  if (!request.ok()) {
    complain(request.error().message);
    return kUsage;
  }
  catch_interrupts();
  std::optional<ipc::Client> client = connect_or_start(options.no_start, options.allow_root);
  if (!client) return interrupted() ? kInterrupted : kNoDaemon;
  const Result<std::string> id = client->start(*request);
  if (!id.ok()) return fail(id.error());
  if (request->detach) return leave(*client, *id);
  StreamPrinter printer({.json = options.json, .ids = options.ids, .stats = options.stats});
  return follow(*client, *id, printer, OnInterrupt::kCancel);
}

}  // namespace hearth::cli
