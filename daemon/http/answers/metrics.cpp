#include "daemon/http/answers/metrics.h"

#include <fmt/core.h>

#include <numeric>
#include <utility>
#include <vector>

#include "daemon/http/answers/metrics_page.h"
#include "daemon/http/answers/traffic_metrics.h"
#include "kernels/base/numbers.h"

namespace hearth::http {
namespace {

template <class T>
int64_t sum(const std::vector<T>& values) {
  return std::accumulate(values.begin(), values.end(), int64_t{0});
}

/// Metrics under hearth's names, which are given without their prefix.
class Page : public MetricsPage {
 public:
  void metric(std::string_view name, std::string_view type, std::string_view help) {
    MetricsPage::metric(fmt::format("hearth_{}", name), type, help);
  }
};

/// GPU readings in base units; none if no GPU reports any.
void add_gpus(Page& page, const ipc::StatsReply& stats) {
  using Gpu = ipc::GpuSnapshot;
  const auto of_gpus = [&](std::string_view name, std::string_view help, auto read) {
    bool begun = false;
    for (const ipc::WorkerStats& worker : stats.workers) {
      if (!worker.snapshot.gpu) continue;
      const double value = read(*worker.snapshot.gpu);
      if (value < 0) continue;  // not reported
      if (!std::exchange(begun, true)) page.metric(name, "gauge", help);
      page.value(value, fmt::format("{{model=\"{}\",gpu=\"{}\"}}", label(worker.model),
                                    label(worker.snapshot.gpu->name)));
    }
  };
  const auto scaled = [](auto value, double unit) {
    return value < 0 ? -1.0 : as_double(value) * unit;
  };
  of_gpus("gpu_memory_bytes", "Memory of the model's GPU.",
          [&](const Gpu& gpu) { return scaled(gpu.memory_total_bytes, 1); });
  of_gpus("gpu_memory_used_bytes", "Of it in use, by whomever.",
          [&](const Gpu& gpu) { return scaled(gpu.memory_used_bytes, 1); });
  of_gpus("gpu_utilization_ratio", "Share of the last second in which it ran anything.",
          [&](const Gpu& gpu) { return scaled(gpu.utilization_percent, 0.01); });
  of_gpus("gpu_power_watts", "What it draws.",
          [&](const Gpu& gpu) { return scaled(gpu.power_mw, 1e-3); });
  of_gpus("gpu_power_limit_watts", "What it may draw.",
          [&](const Gpu& gpu) { return scaled(gpu.power_limit_mw, 1e-3); });
  of_gpus("gpu_sm_clock_hertz", "Clock of its multiprocessors.",
          [&](const Gpu& gpu) { return scaled(gpu.sm_clock_mhz, 1e6); });
  of_gpus("gpu_memory_clock_hertz", "Clock of its memory.",
          [&](const Gpu& gpu) { return scaled(gpu.memory_clock_mhz, 1e6); });
  of_gpus("gpu_temperature_celsius", "Of its chip.",
          [&](const Gpu& gpu) { return scaled(gpu.temperature_c, 1); });
  of_gpus("gpu_throttled", "1: something keeps its clocks low.",
          [](const Gpu& gpu) { return gpu.throttled.empty() ? 0.0 : 1.0; });
}

void add_proposers(Page& page, const ipc::StatsReply& stats) {
  const auto of_each = [&](std::string_view name, std::string_view help, auto read) {
    page.metric(name, "counter", help);
    for (const ipc::WorkerStats& worker : stats.workers) {
      for (const ipc::ProposerStats& by : worker.snapshot.speculation.by) {
        page.value(read(by), fmt::format("{{model=\"{}\",proposer=\"{}\"}}", label(worker.model),
                                         label(by.name)));
      }
    }
  };
  of_each("proposer_drafted_tokens_total", "Drafted tokens that were verified, by proposer.",
          [](const ipc::ProposerStats& by) { return by.drafted_tokens; });
  of_each("proposer_accepted_tokens_total", "Of them, those that were right.",
          [](const ipc::ProposerStats& by) { return by.accepted_tokens; });
}

void add_draft_places(Page& page, const ipc::StatsReply& stats) {
  const auto of_each = [&](std::string_view name, std::string_view help,
                           const std::vector<uint64_t> ipc::SpeculationStats::*counts) {
    page.metric(name, "counter", help);
    for (const ipc::WorkerStats& worker : stats.workers) {
      int place = 0;
      for (const uint64_t count : worker.snapshot.speculation.*counts) {
        page.value(count,
                   fmt::format("{{model=\"{}\",place=\"{}\"}}", label(worker.model), ++place));
      }
    }
  };
  using Stats = ipc::SpeculationStats;
  of_each("place_drafted_tokens_total", "Drafted tokens that were verified, by place in the draft.",
          &Stats::drafted_at);
  of_each("place_accepted_tokens_total", "Of them, those that were right.", &Stats::accepted_at);
}

void add_kept(Page& page, const KeptStats& kept) {
  if (!kept.enabled) return;
  page.metric("responses_kept", "gauge", "Answers of the responses API that are kept.");
  page.value(kept.entries);
  page.metric("responses_kept_bytes", "gauge", "Their bytes.");
  page.value(kept.bytes);
  page.metric("responses_not_kept_total", "counter", "Answers that could not be kept.");
  page.value(kept.not_kept);
}

void add_batches(Page& page, const BatchStats& batches) {
  if (!batches.enabled) return;
  page.metric("files", "gauge", "Files that are kept for batches, and their results.");
  page.value(batches.files);
  page.metric("files_bytes", "gauge", "Their bytes.");
  page.value(batches.bytes);
  page.metric("batches_live", "gauge", "Batches that have not ended.");
  page.value(batches.live);
  page.metric("batch_requests_in_progress", "gauge", "Requests of batches that wait or run.");
  page.value(batches.in_progress);
  page.metric("batch_requests_total", "counter", "Requests of batches that have a result.");
  page.value(batches.lines);
}

/// Nothing if no role has a remote.
void add_remotes(Page& page, const ipc::StatsReply& stats) {
  using Remote = ipc::RemoteStats;
  if (stats.remotes.empty()) return;
  const auto labels = [](const Remote& remote, std::string_view more = {}) {
    return fmt::format("{{role=\"{}\",remote=\"{}\"{}}}", label(remote.role), label(remote.remote),
                       more);
  };
  page.metric("remote_requests_live", "gauge", "Requests that a role's remote answers now.");
  for (const Remote& each : stats.remotes) page.value(each.requests_live, labels(each));
  page.metric("remote_requests_total", "counter", "Requests sent to a role's remote.");
  for (const Remote& each : stats.remotes) page.value(each.requests_sent, labels(each));
  page.metric("remote_requests_ended_total", "counter",
              "Of them, ended, by how; returned: answered here after the remote had failed.");
  for (const Remote& each : stats.remotes) {
    page.value(each.requests_done, labels(each, ",how=\"done\""));
    page.value(each.requests_failed, labels(each, ",how=\"failed\""));
    page.value(each.requests_returned, labels(each, ",how=\"returned\""));
    page.value(each.requests_cancelled, labels(each, ",how=\"cancelled\""));
  }
  page.metric("remote_output_tokens_total", "counter", "Tokens of its answers, as it counts them.");
  for (const Remote& each : stats.remotes) page.value(each.output_tokens_total, labels(each));
}

}  // namespace

std::string metrics_text(const ipc::StatsReply& stats, const KeptStats& kept,
                         const BatchStats& batches, const ModelTraffics& traffic) {
  Page page;
  page.metric("info", "gauge", "Version of the daemon.");
  page.value(1, fmt::format("{{version=\"{}\"}}", label(stats.version)));
  page.metric("uptime_seconds", "gauge", "Since the daemon started.");
  page.value(as_double(stats.uptime_ms) / 1000.0);
  page.metric("requests_live", "gauge", "Requests that wait or run.");
  page.value(stats.requests_live);
  page.metric("requests_total", "counter", "Requests admitted.");
  page.value(stats.requests_total);
  page.metric("requests_ended_total", "counter", "Requests that ended, by how.");
  page.value(stats.requests_done, "{how=\"done\"}");
  page.value(stats.requests_failed, "{how=\"failed\"}");
  page.value(stats.requests_cancelled, "{how=\"cancelled\"}");
  page.metric("output_tokens_total", "counter", "Tokens sent to clients.");
  page.value(stats.output_tokens_total);
  add_kept(page, kept);
  add_batches(page, batches);
  add_remotes(page, stats);

  using Worker = ipc::WorkerStats;
  const auto of_workers = [&](std::string_view name, std::string_view type, std::string_view help,
                              auto read) {
    page.metric(name, type, help);
    for (const Worker& worker : stats.workers) {
      page.value(read(worker), fmt::format("{{model=\"{}\"}}", label(worker.model)));
    }
  };
  of_workers("model_ready", "gauge", "1: serves requests.",
             [](const Worker& w) { return w.state == "ready" ? 1 : 0; });
  of_workers("model_restarts_total", "counter", "Deaths of the model's worker.",
             [](const Worker& w) { return w.restarts; });
  of_workers("sequences_running", "gauge", "Sequences in the engine's batch.",
             [](const Worker& w) { return w.snapshot.num_running; });
  of_workers("sequences_waiting", "gauge", "Sequences that wait in the engine.",
             [](const Worker& w) { return w.snapshot.num_waiting; });
  of_workers("steps_total", "counter", "Steps of the engine.",
             [](const Worker& w) { return w.snapshot.num_steps; });
  of_workers("prompt_tokens_total", "counter", "Prompt tokens of requests that began.",
             [](const Worker& w) { return w.snapshot.prompt_tokens_total; });
  of_workers("prompt_tokens_cached_total", "counter", "Of them, found in the cache.",
             [](const Worker& w) { return w.snapshot.prompt_tokens_cached; });
  of_workers("prompt_tokens_restored_total", "counter", "Of those, read from disk.",
             [](const Worker& w) { return w.snapshot.prompt_tokens_restored; });
  of_workers("prefill_tokens_total", "counter", "Prompt tokens computed.",
             [](const Worker& w) { return w.snapshot.prefill_tokens_total; });
  of_workers("decode_tokens_total", "counter", "Tokens generated.",
             [](const Worker& w) { return w.snapshot.decode_tokens_total; });
  of_workers("preemptions_total", "counter", "Sequences that gave their blocks back for a while.",
             [](const Worker& w) { return w.snapshot.preemptions_total; });
  of_workers("drafted_tokens_total", "counter", "Drafted tokens that were verified.",
             [](const Worker& w) { return w.snapshot.speculation.drafted_tokens; });
  of_workers("accepted_tokens_total", "counter", "Of them, those that were right.",
             [](const Worker& w) { return w.snapshot.speculation.accepted_tokens; });
  of_workers("kv_blocks", "gauge", "KV blocks there are.",
             [](const Worker& w) { return sum(w.snapshot.kv_blocks_total); });
  of_workers("kv_blocks_used", "gauge", "KV blocks that sequences hold.",
             [](const Worker& w) { return sum(w.snapshot.kv_blocks_used); });
  of_workers("kv_blocks_cached", "gauge", "KV blocks that the prefix index alone holds.",
             [](const Worker& w) { return sum(w.snapshot.kv_blocks_cached); });
  of_workers("kv_reserved_bytes", "gauge", "Addresses reserved for KV blocks.",
             [](const Worker& w) { return w.snapshot.kv_reserved_bytes; });
  of_workers("kv_backed_bytes", "gauge", "Of them, backed by memory.",
             [](const Worker& w) { return w.snapshot.kv_backed_bytes; });
  of_workers("kv_bound_bytes", "gauge", "Memory that may back them at the moment.",
             [](const Worker& w) { return w.snapshot.kv_bound_bytes; });
  of_workers("prefix_ram_bytes", "gauge", "Host memory that prefixes of models on a GPU take.",
             [](const Worker& w) { return w.snapshot.store.ram_bytes; });
  of_workers("prefix_ram_budget_bytes", "gauge", "That they may take.",
             [](const Worker& w) { return w.snapshot.store.ram_budget_bytes; });
  of_workers("prefix_ram_loaded_total", "counter", "Chunks of prefixes that came from there.",
             [](const Worker& w) { return w.snapshot.store.ram_loaded; });
  of_workers("prefix_ram_evicted_total", "counter", "Chunks that left it for others.",
             [](const Worker& w) { return w.snapshot.store.ram_evicted; });
  // A gauge, because drafts that do not pay lower it.
  of_workers("drafts_saved_seconds", "gauge", "Estimate: time that drafts have saved.",
             [](const Worker& w) { return w.snapshot.speculation.saved_ms / 1000; });
  add_proposers(page, stats);
  add_draft_places(page, stats);
  add_gpus(page, stats);
  add_traffic(page, stats, traffic);
  return page.take();
}

}  // namespace hearth::http
