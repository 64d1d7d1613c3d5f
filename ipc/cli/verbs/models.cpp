// hearth models: what can be run.

#include <fmt/format.h>

#include "ipc/cli/connect/connection.h"
#include "ipc/cli/terminal/table.h"
#include "ipc/cli/terminal/terminal.h"
#include "ipc/cli/verbs/verbs.h"

namespace hearth::cli {
namespace {

std::string known_facts(const ipc::ModelEntry& model) {
  if (!model.problem.empty()) return model.problem;
  if (model.architecture.empty()) return "";
  std::string facts = fmt::format("{} {}", model.architecture, model.file_type);
  if (model.num_parameters > 0) facts += ", " + human_count(model.num_parameters) + " parameters";
  facts += fmt::format(", context {}", model.context_length);
  if (!model.draft.empty()) facts += ", draft model " + model.draft;
  for (const ipc::AdapterUse& adapter : model.adapters) facts += ", adapter " + adapter.name;
  return facts;
}

/// "16.0 MiB of 755.0 MiB", of a model that is in memory.
std::string kv_of(const ipc::ModelEntry& model) {
  if (model.kv_bytes == 0) return "-";
  return human_bytes(model.kv_backed_bytes) + " of " + human_bytes(model.kv_bytes);
}

}  // namespace

std::string state_text(const ipc::ModelEntry& model) {
  if (model.state != "loading") return model.state;
  return fmt::format("load {:.0f} %", 100 * model.load_share);
}

std::string replicas_text(const std::vector<ipc::ModelEntry>& models) {
  std::string out;
  for (const ipc::ModelEntry& model : models) {
    for (const ipc::ReplicaEntry& replica : model.replicas) {
      out += fmt::format("{} on {}: {}", model.name, replica.device, replica.state);
      if (replica.memory_bytes > 0) out += ", " + human_bytes(replica.memory_bytes);
      if (replica.budget_bytes > 0) out += " of " + human_bytes(replica.budget_bytes);
      if (replica.worker_pid > 0) out += fmt::format(", worker {}", replica.worker_pid);
      if (replica.requests > 0) out += fmt::format(", {} requests", replica.requests);
      if (!replica.problem.empty()) out += ": " + replica.problem;
      out += "\n";
    }
    for (const ipc::StageUse& stage : model.stages) {
      out += fmt::format("{} on {}: {}\n", model.name, stage.device, stage_text(stage));
    }
  }
  return out;
}

std::string models_text(const ipc::ModelsReply& reply, size_t width) {
  std::string out = "no models found\n";
  if (!reply.models.empty()) {
    std::vector<std::vector<std::string>> rows;
    for (const ipc::ModelEntry& model : reply.models) {
      rows.push_back({model.name, state_text(model), human_bytes(model.file_bytes),
                      model.memory_bytes == 0 ? "-" : human_bytes(model.memory_bytes), kv_of(model),
                      fmt::format("{}", fmt::join(model.roles, ",")), known_facts(model)});
    }
    out = table({{"NAME", false, 16},
                 {"STATE"},
                 {"FILE", true},
                 {"MEMORY", true},
                 {"KV BACKED", false},
                 {"ROLES", false, 7},
                 {"", false, 1}},
                std::move(rows), width);
  }
  out += replicas_text(reply.models);
  if (!reply.adapters.empty()) {
    out += "adapters:";
    for (const ipc::AdapterEntry& adapter : reply.adapters) {
      out += fmt::format(" {} ({})", adapter.name, human_bytes(adapter.file_bytes));
    }
    out += "\n";
  }
  out += "searched:";
  for (const std::string& folder : reply.folders) out += " " + folder;
  return terminal_safe(out) + "\n";
}

int models(bool json) {
  std::optional<ipc::Client> client = connect();
  if (!client) return kNoDaemon;
  return show(client->models(), json, [](const ipc::ModelsReply& reply) {
    write_stdout(models_text(reply, terminal_columns()));
  });
}

}  // namespace hearth::cli
