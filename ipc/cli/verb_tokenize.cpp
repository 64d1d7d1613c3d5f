// hearth tokenize: the tokens of a text.

#include <fmt/format.h>

#include "ipc/cli/connection.h"
#include "ipc/cli/input.h"
#include "ipc/cli/terminal.h"
#include "ipc/cli/verbs.h"

namespace hearth::cli {

int tokenize(const TokenizeOptions& options) {
  Result<std::string> text = read_text(options.text_words, options.file);
  if (!text.ok()) {
    complain("text: " + text.error().message);
    return kUsage;
  }
  std::optional<ipc::Client> client = connect_or_start(options.no_start);
  if (!client) return kNoDaemon;
  const ipc::TokenizeRequest request{options.model, *text, options.raw, options.parse_special};
  return show(client->tokenize(request), options.json, [](const ipc::TokenizeReply& reply) {
    std::string out;
    for (size_t i = 0; i < reply.ids.size(); ++i) {
      out += fmt::format("{:>8}", reply.ids[i]);
      if (i < reply.entries.size()) out += "  " + terminal_safe(reply.entries[i]);
      out += "\n";
    }
    write_stdout(out);
  });
}

}  // namespace hearth::cli
