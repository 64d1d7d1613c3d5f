// hearth ps: live requests and resident models.

#include <fmt/core.h>

#include "ipc/cli/connection.h"
#include "ipc/cli/terminal.h"
#include "ipc/cli/verbs.h"

namespace hearth::cli {

std::string ps_text(const ipc::PsReply& reply) {
  std::string out = fmt::format("{:<24} {:<10} {:<11} {:>10} {:>10} {:>7}\n", "MODEL", "STATE",
                                "DEVICE", "WEIGHTS", "KV", "WORKER");
  for (const ipc::ModelEntry& model : reply.models) {
    const std::string state = model.state == "loading"
                                  ? fmt::format("load {:.0f} %", 100 * model.load_share)
                                  : model.state;
    out +=
        fmt::format("{:<24} {:<10} {:<11} {:>10} {:>10} {:>7}\n", model.name, state, model.device,
                    human_bytes(model.weight_bytes), human_bytes(model.kv_bytes), model.worker_pid);
    if (model.gpu) out += "  " + ipc::gpu_text(*model.gpu) + "\n";
  }
  if (reply.models.empty()) out += "(no model in memory)\n";
  out += fmt::format("\n{:<24} {:<16} {:<10} {:<11} {:>7} {:>7} {:>12}  {}\n", "REQUEST", "MODEL",
                     "STATE", "PRIORITY", "PROMPT", "OUTPUT", "AGE", "OWNER");
  for (const ipc::PsEntry& entry : reply.requests) {
    out += fmt::format("{:<24} {:<16} {:<10} {:<11} {:>7} {:>7} {:>12}  {}\n", entry.id,
                       entry.model, entry.state, entry.priority, entry.prompt_tokens,
                       entry.output_tokens, human_duration(entry.age_ms), entry.owner);
  }
  if (reply.requests.empty()) out += "(no live request)\n";
  return terminal_safe(out);
}

int ps(bool json) {
  std::optional<ipc::Client> client = connect();
  if (!client) return kNoDaemon;
  return show(client->ps(), json, [](const ipc::PsReply& reply) { write_stdout(ps_text(reply)); });
}

}  // namespace hearth::cli
