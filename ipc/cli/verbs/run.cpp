// hearth run: a prompt in, text out.

#include <fmt/core.h>

#include <string>
#include <vector>

#include "ipc/cli/answer/model_argument.h"
#include "ipc/cli/answer/run_fields.h"
#include "ipc/cli/answer/stream_printer.h"
#include "ipc/cli/connect/connection.h"
#include "ipc/cli/terminal/input.h"
#include "ipc/cli/terminal/interrupt.h"
#include "ipc/cli/terminal/terminal.h"
#include "ipc/cli/verbs/verbs.h"

namespace hearth::cli {
namespace {

/// Prints the request's id and exits once the daemon's first event confirms the request.
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

/// True at a terminal without a prompt and without options that a conversation cannot use.
bool asks_nothing(const RunOptions& options, const ipc::GenerateRequest& request) {
  return stdin_is_terminal() && stdout_is_terminal() && !options.raw && !options.json &&
         !options.ids && request.prompt.empty() && request.prompt_ids.empty() && !request.detach;
}

}  // namespace

int run(const RunOptions& options) {
  const Result<std::string> model = loaded_model_argument(options.model);
  if (!model.ok()) return fail(model.error());
  Result<std::string> prompt = read_prompt(options.prompt_words, options.file);
  if (!prompt.ok()) {
    complain("prompt: " + prompt.error().message);
    return kUsage;
  }
  Result<ipc::GenerateRequest> request = request_from_flags(*model, *prompt, options.fields);
  if (!request.ok()) {
    complain(request.error().message);
    return kUsage;
  }
  if (!options.raw && !request->prompt.empty()) request->prompt_as = "message";
  // While a model is loaded for a conversation Ctrl-C ends the program; there is nothing to cancel.
  const bool conversation_wanted = asks_nothing(options, *request);
  if (!conversation_wanted) catch_interrupts();
  std::optional<ipc::Client> client = connect_or_start(options.no_start, options.allow_root);
  if (!client) return interrupted() ? kInterrupted : kNoDaemon;
  if (conversation_wanted) {
    ChatOptions conversation;
    conversation.model = *model;
    conversation.fields = options.fields;
    const Result<void> possible = check_chat(*client, conversation.model, "");
    if (possible.ok()) return chat_with(std::move(*client), conversation);
    // A model without a chat template continues an empty prompt instead.
    if (possible.error().code != ErrorCode::kUnsupported) return fail(possible.error());
    catch_interrupts();
  }
  const Result<std::string> id = client->start(*request);
  if (!id.ok()) return fail(id.error());
  if (request->detach) return leave(*client, *id);
  StreamPrinter printer({.json = options.json,
                         .ids = options.ids,
                         .stats = options.stats,
                         .raw = request->prompt_as == "text",
                         .explain_empty = true});
  return follow(*client, *id, printer, OnInterrupt::kCancel);
}

}  // namespace hearth::cli
