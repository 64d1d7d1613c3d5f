#include "ipc/cli/replay/comparison.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "ipc/cli/terminal/table.h"
#include "kernels/base/numbers.h"
#include "kernels/base/sizes.h"

namespace hearth::cli {
namespace {

using Row = std::vector<std::string>;

std::string number(double value) {
  if (value >= 100) return fmt::format("{:.0f}", value);
  return fmt::format("{:.{}f}", value, value >= 10 ? 1 : 2);
}

std::string ratio(double recorded, double replayed) {
  if (recorded <= 0) return "";
  return fmt::format("{:.2f}", replayed / recorded);
}

Row row(const char* name, double recorded, double replayed) {
  return {name, number(recorded), number(replayed), ratio(recorded, replayed)};
}

Row share_row(const char* name, double recorded, double replayed) {
  return {name, fmt::format("{:.1f} %", 100 * recorded), fmt::format("{:.1f} %", 100 * replayed),
          ratio(recorded, replayed)};
}

Row count_row(const char* name, int64_t recorded, int64_t replayed) {
  return {name, fmt::format("{}", recorded), fmt::format("{}", replayed),
          ratio(as_double(recorded), as_double(replayed))};
}

std::string summary_json(const Summary& s) {
  return fmt::format(
      R"({{"ttft_ms_p50":{:.3f},"ttft_ms_p95":{:.3f},"tpot_ms_p50":{:.3f},"tpot_ms_p95":{:.3f},)"
      R"("tpot_ms_p99":{:.3f},"tokens_per_s":{:.3f},"cached_share":{:.4f},"prompt_tokens":{},)"
      R"("output_tokens":{},"errors":{}}})",
      s.ttft_ms_p50, s.ttft_ms_p95, s.tpot_ms_p50, s.tpot_ms_p95, s.tpot_ms_p99, s.tokens_per_s,
      s.cached_share, s.prompt_tokens, s.output_tokens, s.errors);
}

}  // namespace

Measured measured_of(const ipc::RecordedEvent& record, bool generates) {
  return {.arrival_us = record.arrival_us,
          .generates = generates,
          .failed = !record.error.empty(),
          .ttft_ms = record.timings.ttft_ms,
          .tpot_ms = record.timings.tpot_ms,
          .total_ms = record.timings.total_ms,
          .prompt_tokens = record.usage.prompt_tokens,
          .cached_tokens = record.usage.cached_tokens,
          .output_tokens = record.usage.output_tokens};
}

double percentile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  const double rank = std::ceil(std::clamp(share, 0.0, 1.0) * as_double(values.size()));
  const auto at = values.begin() + std::max<ptrdiff_t>(std::lround(rank) - 1, 0);
  std::ranges::nth_element(values, at);
  return *at;
}

Summary summarize(std::span<const Measured> requests) {
  Summary out;
  std::vector<double> ttft_ms, tpot_ms;
  int64_t cached_tokens = 0;
  int64_t first_us = INT64_MAX;
  double last_us = 0;
  for (const Measured& request : requests) {
    if (request.failed) {
      ++out.errors;
      continue;
    }
    if (request.ttft_ms > 0) ttft_ms.push_back(request.ttft_ms);
    if (request.tpot_ms > 0) tpot_ms.push_back(request.tpot_ms);
    out.output_tokens += request.output_tokens;
    out.prompt_tokens += request.prompt_tokens;
    cached_tokens += request.cached_tokens;
    first_us = std::min(first_us, request.arrival_us);
    last_us = std::max(last_us, as_double(request.arrival_us) + request.total_ms * 1e3);
  }
  out.ttft_ms_p50 = percentile(ttft_ms, 0.5);
  out.ttft_ms_p95 = percentile(ttft_ms, 0.95);
  out.tpot_ms_p50 = percentile(tpot_ms, 0.5);
  out.tpot_ms_p95 = percentile(tpot_ms, 0.95);
  out.tpot_ms_p99 = percentile(tpot_ms, 0.99);
  if (out.prompt_tokens > 0) {
    out.cached_share = as_double(cached_tokens) / as_double(out.prompt_tokens);
  }
  const double span_us = last_us - as_double(std::min(first_us, int64_t{1} << 60));
  if (span_us > 0) out.tokens_per_s = as_double(out.output_tokens) * 1e6 / span_us;
  return out;
}

Comparison compare(std::span<const Compared> requests) {
  Comparison out;
  out.requests = size32(requests);
  std::vector<Measured> recorded, replayed;
  for (const Compared& request : requests) {
    recorded.push_back(request.recorded);
    replayed.push_back(request.replayed);
    out.newly_failed += request.replayed.failed && !request.recorded.failed ? 1 : 0;
    switch (request.text) {
      case SameText::kNotComparable: ++out.texts_not_comparable; break;
      case SameText::kEqual: ++out.texts_equal; break;
      case SameText::kDifferent: ++out.texts_different; break;
    }
  }
  out.recorded = summarize(recorded);
  out.replayed = summarize(replayed);
  return out;
}

std::string comparison_table(const Comparison& comparison) {
  const Summary& a = comparison.recorded;
  const Summary& b = comparison.replayed;
  const std::vector<Column> columns = {
      {.title = ""}, {"recorded", true}, {"replayed", true}, {"ratio", true}};
  const std::vector<Row> rows = {
      row("TTFT p50, ms", a.ttft_ms_p50, b.ttft_ms_p50),
      row("TTFT p95, ms", a.ttft_ms_p95, b.ttft_ms_p95),
      row("TPOT p50, ms", a.tpot_ms_p50, b.tpot_ms_p50),
      row("TPOT p95, ms", a.tpot_ms_p95, b.tpot_ms_p95),
      row("TPOT p99, ms", a.tpot_ms_p99, b.tpot_ms_p99),
      row("tokens/s", a.tokens_per_s, b.tokens_per_s),
      share_row("prompt tokens cached", a.cached_share, b.cached_share),
      count_row("prompt tokens", a.prompt_tokens, b.prompt_tokens),
      count_row("output tokens", a.output_tokens, b.output_tokens),
      count_row("errors", a.errors, b.errors),
  };
  return table(columns, rows, 0) +
         fmt::format("{} requests; texts: {} equal, {} different, {} not comparable\n",
                     comparison.requests, comparison.texts_equal, comparison.texts_different,
                     comparison.texts_not_comparable);
}

std::string comparison_json(const Comparison& comparison) {
  return fmt::format(
      R"({{"requests":{},"recorded":{},"replayed":{},"texts_equal":{},"texts_different":{},)"
      R"("texts_not_comparable":{},"newly_failed":{}}})"
      "\n",
      comparison.requests, summary_json(comparison.recorded), summary_json(comparison.replayed),
      comparison.texts_equal, comparison.texts_different, comparison.texts_not_comparable,
      comparison.newly_failed);
}

}  // namespace hearth::cli
