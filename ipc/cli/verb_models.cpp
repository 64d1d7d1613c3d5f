// hearth models: what can be run.

#include <fmt/format.h>

#include "ipc/cli/connection.h"
#include "ipc/cli/terminal.h"
#include "ipc/cli/verbs.h"

namespace hearth::cli {
namespace {

std::string known_facts(const ipc::ModelEntry& model) {
  if (!model.problem.empty()) return model.problem;
  if (model.architecture.empty()) return "";
  std::string facts = fmt::format("{} {}", model.architecture, model.file_type);
  if (model.num_parameters > 0) facts += ", " + human_count(model.num_parameters) + " parameters";
  facts += fmt::format(", context {}", model.context_length);
  if (!model.draft.empty()) facts += ", guessed ahead by " + model.draft;
  return facts;
}

std::string state_of(const ipc::ModelEntry& model) {
  if (model.state != "loading") return model.state;
  return fmt::format("load {:.0f} %", 100 * model.load_share);
}

void print_models(const ipc::ModelsReply& reply) {
  std::string out;
  if (!reply.models.empty()) {
    out = fmt::format("{:<28} {:<10} {:>10} {:>10}  {:<14} {}\n", "NAME", "STATE", "FILE", "MEMORY",
                      "ROLES", "");
  }
  for (const ipc::ModelEntry& model : reply.models) {
    const std::string memory = model.memory_bytes == 0 ? "-" : human_bytes(model.memory_bytes);
    out += fmt::format("{:<28} {:<10} {:>10} {:>10}  {:<14} {}\n", model.name, state_of(model),
                       human_bytes(model.file_bytes), memory,
                       // Joined first: a width would be each role's.
                       fmt::format("{}", fmt::join(model.roles, ",")), known_facts(model));
  }
  if (reply.models.empty()) out += "no models found\n";
  out += "searched:";
  for (const std::string& folder : reply.folders) out += " " + folder;
  write_stdout(terminal_safe(out) + "\n");
}

}  // namespace

int models(bool json) {
  std::optional<ipc::Client> client = connect();
  if (!client) return kNoDaemon;
  return show(client->models(), json, print_models);
}

}  // namespace hearth::cli
