// hearth stats: counters of the daemon and the state of each worker.

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "ipc/cli/connect/connection.h"
#include "ipc/cli/terminal/terminal.h"
#include "ipc/cli/verbs/verbs.h"
#include "kernels/base/numbers.h"

namespace hearth::cli {
namespace {

int64_t sum(const std::vector<int32_t>& values) {
  return std::accumulate(values.begin(), values.end(), int64_t{0});
}

double percent(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : 100.0 * as_double(part) / as_double(whole);
}

}  // namespace

std::string percents_by_place(const ipc::SpeculationStats& drafts) {
  std::string out;
  for (size_t i = 0; i < std::min(drafts.drafted_at.size(), drafts.accepted_at.size()); ++i) {
    out += fmt::format(" {:.0f}", percent(drafts.accepted_at[i], drafts.drafted_at[i]));
  }
  return out + " %";
}

std::string ram_text(const ipc::StoreSnapshot& store) {
  return fmt::format("{} of {} for the GPU, {} of it pinned: {} chunks, {} loaded, {} evicted",
                     human_bytes(store.ram_bytes), human_bytes(store.ram_budget_bytes),
                     human_bytes(store.ram_pinned_bytes), store.ram_chunks, store.ram_loaded,
                     store.ram_evicted);
}

namespace {

std::string worker_lines(const ipc::WorkerStats& worker) {
  const ipc::WorkerSnapshot& s = worker.snapshot;
  const double hit_rate = s.prompt_tokens_total == 0 ? 0
                                                     : 100.0 * as_double(s.prompt_tokens_cached) /
                                                           as_double(s.prompt_tokens_total);
  std::string out = fmt::format("\n{} on {}: {}, pid {}, {} restarts, heard from {} ago\n",
                                worker.model, worker.device, worker.state, worker.pid,
                                worker.restarts, human_duration(worker.heartbeat_age_ms));
  out += fmt::format("  sequences   {} running, {} waiting, {} preempted ({} preemptions)\n",
                     s.num_running, s.num_waiting, s.num_preempted, s.preemptions_total);
  out += fmt::format("  KV blocks   {} used, {} cached of {} ({})\n", sum(s.kv_blocks_used),
                     sum(s.kv_blocks_cached), sum(s.kv_blocks_total), human_bytes(s.kv_bytes));
  out += fmt::format("  KV memory   {} backed of {} reserved, bound {}\n",
                     human_bytes(s.kv_backed_bytes), human_bytes(s.kv_reserved_bytes),
                     human_bytes(s.kv_bound_bytes));
  out += fmt::format("  prompts     {} tokens, {} found cached ({:.1f} %)\n", s.prompt_tokens_total,
                     s.prompt_tokens_cached, hit_rate);
  out += fmt::format("  prefill     {} tokens, {:.1f} tokens/s recently\n", s.prefill_tokens_total,
                     s.prefill_tokens_per_s);
  out += fmt::format("  decode      {} tokens, {:.1f} tokens/s recently\n", s.decode_tokens_total,
                     s.decode_tokens_per_s);
  const ipc::SpeculationStats& drafts = s.speculation;
  if (drafts.drafted_tokens > 0) {
    out += fmt::format(
        "  speculation {} drafted, {} accepted ({:.1f} %), {:.2f} per verification, saved {:.1f} "
        "s\n",
        drafts.drafted_tokens, drafts.accepted_tokens,
        percent(drafts.accepted_tokens, drafts.drafted_tokens), drafts.mean_accepted,
        drafts.saved_ms / 1000);
    for (const ipc::ProposerStats& by : drafts.by) {
      out += fmt::format("              by {}: {} drafted, {} accepted ({:.1f} %)\n", by.name,
                         by.drafted_tokens, by.accepted_tokens,
                         percent(by.accepted_tokens, by.drafted_tokens));
    }
    out += "              right by place:" + percents_by_place(drafts) + "\n";
  }
  if (const ipc::StoreSnapshot& store = s.store; store.state != "off") {
    out += fmt::format("  on disk     {}: {} chunks, {} of {}; {} tokens restored\n", store.state,
                       store.entries, human_bytes(store.bytes), human_bytes(store.budget_bytes),
                       s.prompt_tokens_restored);
    out += fmt::format("              {} saved, {} loaded, {} evicted, {} dropped, {} refused\n",
                       store.chunks_saved, store.chunks_loaded, store.chunks_evicted,
                       store.chunks_dropped, store.chunks_refused);
    if (!store.last_error.empty()) {
      out += fmt::format("              last error: {}\n", store.last_error);
    }
  }
  if (const ipc::StoreSnapshot& store = s.store; store.ram_budget_bytes > 0) {
    out += fmt::format("  host memory {}\n", ram_text(store));
  }
  out += fmt::format("  steps       {}, {:.2f} ms recently\n", s.num_steps, s.step_ms_recent);
  if (s.device_memory) {
    const ipc::DeviceMemory& memory = *s.device_memory;
    out += fmt::format("  device      {} planned; {} reserved, {} taken of it, {} by graphs\n",
                       human_bytes(memory.planned_bytes), human_bytes(memory.reserved_bytes),
                       human_bytes(memory.taken_bytes), human_bytes(memory.graph_bytes));
  }
  if (s.gpu) out += fmt::format("  GPU         {}\n", ipc::gpu_text(*s.gpu));
  return out;
}

std::string remote_line(const ipc::RemoteStats& remote) {
  return fmt::format(
      "remote of {}: {}, {} live, {} sent: {} done, {} failed, {} returned, {} cancelled; {} "
      "tokens\n",
      remote.role, remote.remote, remote.requests_live, remote.requests_sent, remote.requests_done,
      remote.requests_failed, remote.requests_returned, remote.requests_cancelled,
      remote.output_tokens_total);
}

}  // namespace

std::string stats_text(const ipc::StatsReply& reply) {
  std::string out = fmt::format("hearthd {} up {}, instance {}\n", reply.version,
                                human_duration(reply.uptime_ms), reply.instance);
  out += fmt::format("requests: {} live, {} so far: {} done, {} failed, {} cancelled\n",
                     reply.requests_live, reply.requests_total, reply.requests_done,
                     reply.requests_failed, reply.requests_cancelled);
  out += fmt::format("output: {} tokens\n", reply.output_tokens_total);
  for (const ipc::RemoteStats& remote : reply.remotes) out += remote_line(remote);
  for (const ipc::WorkerStats& worker : reply.workers) out += worker_lines(worker);
  return terminal_safe(out);
}

int stats(bool json) {
  std::optional<ipc::Client> client = connect();
  if (!client) return kNoDaemon;
  return show(client->stats(), json,
              [](const ipc::StatsReply& reply) { write_stdout(stats_text(reply)); });
}

}  // namespace hearth::cli
