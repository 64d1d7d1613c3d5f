// hearth ps: live requests and resident models.

#include <fmt/core.h>

#include "ipc/cli/connect/connection.h"
#include "ipc/cli/terminal/table.h"
#include "ipc/cli/terminal/terminal.h"
#include "ipc/cli/verbs/verbs.h"

namespace hearth::cli {

std::string requests_table(const ipc::PsReply& reply, size_t width, size_t most_rows) {
  std::vector<std::vector<std::string>> rows;
  for (const ipc::PsEntry& entry : reply.requests) {
    if (rows.size() >= most_rows) break;
    const std::string state =
        entry.remote ? fmt::format("{} {}", entry.state, *entry.remote) : entry.state;
    rows.push_back({entry.id, entry.model, state, entry.priority,
                    std::to_string(entry.prompt_tokens), std::to_string(entry.output_tokens),
                    human_duration(entry.age_ms), entry.owner});
  }
  const std::string out = table({{"REQUEST", false, 8},
                                 {"MODEL", false, 10},
                                 {"STATE", false, 10},
                                 {"CLASS"},
                                 {"PROMPT", true},
                                 {"OUTPUT", true},
                                 {"AGE", true},
                                 {"OWNER", false, 6}},
                                std::move(rows), width);
  return reply.requests.empty() ? out + "(no live request)\n" : out;
}

std::string ps_text(const ipc::PsReply& reply, size_t width) {
  std::vector<std::vector<std::string>> rows;
  std::string gpus;
  for (const ipc::ModelEntry& model : reply.models) {
    rows.push_back({model.name, state_text(model), model.device, human_bytes(model.weight_bytes),
                    human_bytes(model.kv_bytes_used), human_bytes(model.kv_backed_bytes),
                    human_bytes(model.kv_bound_bytes), std::to_string(model.worker_pid)});
    if (model.gpu) gpus += model.name + ": " + ipc::gpu_text(*model.gpu) + "\n";
  }
  std::string out = table({{"MODEL", false, 8},
                           {"STATE"},
                           {"DEVICE", false, 6},
                           {"WEIGHTS", true},
                           {"KV USED", true},
                           {"BACKED", true},
                           {"BOUND", true},
                           {"WORKER", true}},
                          std::move(rows), width);
  out += terminal_safe(replicas_text(reply.models) + gpus);
  if (reply.models.empty()) out += "(no model in memory)\n";
  return out + "\n" + requests_table(reply, width, SIZE_MAX);
}

int ps(bool json) {
  std::optional<ipc::Client> client = connect();
  if (!client) return kNoDaemon;
  return show(client->ps(), json,
              [](const ipc::PsReply& reply) { write_stdout(ps_text(reply, terminal_columns())); });
}

}  // namespace hearth::cli
