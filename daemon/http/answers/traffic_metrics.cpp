#include "daemon/http/answers/traffic_metrics.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/numbers.h"

namespace hearth::http {
namespace {

/// One model: what the broker measured, and what its worker reported.
struct Row {
  std::string model;  ///< as a label's value
  const ModelTraffic* traffic;
  const ipc::WorkerSnapshot* snapshot;  ///< null: it has no worker
};

std::vector<Row> rows_of(const ipc::StatsReply& stats, const ModelTraffics& traffic) {
  std::vector<Row> rows;
  for (const auto& [model, its] : traffic) {
    const auto worker = std::ranges::find(stats.workers, model, &ipc::WorkerStats::model);
    rows.push_back(
        {label(model), &its, worker == stats.workers.end() ? nullptr : &worker->snapshot});
  }
  return rows;
}

/// The share of blocks that sequences hold in the fullest pool, which is the one that makes
/// requests wait. Nothing before the worker's engine has reported.
std::optional<double> kv_usage(const ipc::WorkerSnapshot& snapshot) {
  std::optional<double> usage;
  const size_t groups = std::min(snapshot.kv_blocks_total.size(), snapshot.kv_blocks_used.size());
  for (size_t group = 0; group < groups; ++group) {
    if (snapshot.kv_blocks_total[group] <= 0) continue;
    const double share =
        as_double(snapshot.kv_blocks_used[group]) / as_double(snapshot.kv_blocks_total[group]);
    usage = std::max(usage.value_or(0), std::clamp(share, 0.0, 1.0));
  }
  return usage;
}

/// `key`: the label's name.
void add_histogram(MetricsPage& page, std::string name, std::string_view help,
                   const std::vector<Row>& rows, std::string_view key,
                   const Durations ModelTraffic::*durations) {
  page.metric(std::move(name), "histogram", help);
  for (const Row& row : rows) {
    const Durations& of_row = row.traffic->*durations;
    uint64_t count = 0;
    for (size_t i = 0; i < of_row.bounds.size(); ++i) {
      count += of_row.counts[i];
      page.value(count,
                 fmt::format("{{{}=\"{}\",le=\"{}\"}}", key, row.model, of_row.bounds[i].seconds),
                 "_bucket");
    }
    count += of_row.counts[of_row.bounds.size()];
    const std::string labels = fmt::format("{{{}=\"{}\"}}", key, row.model);
    page.value(count, fmt::format("{{{}=\"{}\",le=\"+Inf\"}}", key, row.model), "_bucket");
    page.value(as_double(of_row.sum_us) / 1e6, labels, "_sum");
    page.value(count, labels, "_count");
  }
}

/// Under the names, with the label and the meanings that vLLM gives them.
void add_vllm(MetricsPage& page, const std::vector<Row>& rows) {
  const auto of_rows = [&](std::string name, std::string_view type, std::string_view help,
                           auto read) {
    page.metric(std::move(name), type, help);
    for (const Row& row : rows) {
      page.value(read(row), fmt::format("{{model_name=\"{}\"}}", row.model));
    }
  };
  const auto drafts = [](const Row& row) {
    return row.snapshot == nullptr ? ipc::SpeculationStats() : row.snapshot->speculation;
  };
  of_rows("vllm:num_requests_running", "gauge", "Sequences in the engine's batch.",
          [](const Row& row) { return row.snapshot == nullptr ? 0 : row.snapshot->num_running; });
  of_rows("vllm:num_requests_waiting", "gauge",
          "Sequences that wait in the engine, preempted ones included, and requests that wait for "
          "the model.",
          [](const Row& row) {
            const int32_t in_engine = row.snapshot == nullptr
                                          ? 0
                                          : row.snapshot->num_waiting + row.snapshot->num_preempted;
            return in_engine + row.traffic->num_waiting;
          });
  page.metric("vllm:kv_cache_usage_perc", "gauge",
              "Share of KV blocks that sequences hold, 0 to 1, in the fullest pool.");
  for (const Row& row : rows) {
    const std::optional<double> usage =
        row.snapshot == nullptr ? std::nullopt : kv_usage(*row.snapshot);
    if (usage) page.value(*usage, fmt::format("{{model_name=\"{}\"}}", row.model));
  }
  page.metric("vllm:cache_config_info", "gauge",
              "Tokens of a KV block, and blocks of the layers that keep a whole context.");
  for (const Row& row : rows) {
    if (row.traffic->num_blocks == 0) continue;
    page.value(1, fmt::format("{{block_size=\"{}\",num_gpu_blocks=\"{}\",model_name=\"{}\"}}",
                              row.traffic->block_size, row.traffic->num_blocks, row.model));
  }
  of_rows("vllm:spec_decode_num_drafts_total", "counter", "Drafts that were verified.",
          [&](const Row& row) { return drafts(row).verifications; });
  of_rows("vllm:spec_decode_num_draft_tokens_total", "counter",
          "Drafted tokens that were verified.",
          [&](const Row& row) { return drafts(row).drafted_tokens; });
  of_rows("vllm:spec_decode_num_accepted_tokens_total", "counter",
          "Of them, those that were right.",
          [&](const Row& row) { return drafts(row).accepted_tokens; });
  add_histogram(page, "vllm:time_to_first_token_seconds",
                "From a request's arrival to its first token.", rows, "model_name",
                &ModelTraffic::ttft);
}

}  // namespace

void add_traffic(MetricsPage& page, const ipc::StatsReply& stats, const ModelTraffics& traffic) {
  if (traffic.empty()) return;
  const std::vector<Row> rows = rows_of(stats, traffic);
  add_histogram(page, "hearth_ttft_seconds", "From a request's arrival to its first token.", rows,
                "model", &ModelTraffic::ttft);
  add_histogram(page, "hearth_token_gap_seconds",
                "Between two arrivals of tokens of a sequence; tokens within 2 ms arrive together.",
                rows, "model", &ModelTraffic::gaps);
  page.metric("hearth_requests_waiting", "gauge", "Requests that wait for the model.");
  for (const Row& row : rows) {
    page.value(row.traffic->num_waiting, fmt::format("{{model=\"{}\"}}", row.model));
  }
  add_vllm(page, rows);
}

}  // namespace hearth::http
