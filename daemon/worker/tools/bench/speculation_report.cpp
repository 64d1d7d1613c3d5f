#include "daemon/worker/tools/bench/speculation_report.h"

#include <fmt/core.h>

#include <algorithm>

#include "ipc/text/shown_text.h"
#include "ipc/wire/json.h"
#include "kernels/base/numbers.h"

namespace hearth::worker {
namespace {

using ipc::Json;

double share(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : as_double(part) / as_double(whole);
}

/// Acceptance rate by position, as far as tokens were drafted.
std::vector<double> by_place(const engine::SpeculationCounts& counts) {
  std::vector<double> out;
  for (size_t i = 0; i < counts.drafted_at.size() && counts.drafted_at[i] > 0; ++i) {
    out.push_back(share(counts.accepted_at[i], counts.drafted_at[i]));
  }
  return out;
}

double mean_accepted(const engine::SpeculationCounts& counts) {
  return share(counts.accepted_tokens, counts.verifications);
}

double least(const std::vector<double>& values) {
  return values.empty() ? 0 : *std::ranges::min_element(values);
}
double largest(const std::vector<double>& values) {
  return values.empty() ? 0 : *std::ranges::max_element(values);
}

}  // namespace

std::string as_text(const SpeculationReport& report) {
  const engine::SpeculationCounts& counts = report.counts;
  std::string out = fmt::format(
      "{}, {}; {}, {} threads\n"
      "drafts by {}, {} per step; {} sequences of up to {} tokens, temperature {}\n\n",
      ipc::one_line(report.model, 100), report.type, ipc::one_line(report.device, 100),
      report.threads, ipc::one_line(report.proposer, 100),
      report.width == 0 ? "as many as pay" : fmt::format("{}", report.width), report.sequences,
      report.tokens, report.temperature);
  out += fmt::format("plain         {:>10.1f} tokens/s\nwith drafts   {:>10.1f} tokens/s\n",
                     median(report.plain_tokens_per_s), median(report.drafted_tokens_per_s));
  out += fmt::format("ratio         {:>10.3f} ({:.3f} to {:.3f})\n", median(report.ratios),
                     least(report.ratios), largest(report.ratios));
  out += fmt::format("drafted {}, accepted {} ({:.1f} %), {:.2f} per verification; by place",
                     counts.drafted_tokens, counts.accepted_tokens,
                     100 * share(counts.accepted_tokens, counts.drafted_tokens),
                     mean_accepted(counts));
  for (const double chance : by_place(counts)) out += fmt::format(" {:.2f}", chance);
  out += fmt::format("\nsaved {:.2f} s", report.saved_s);
  if (report.draft_step_us > 0) out += fmt::format(", a draft {:.0f} us", report.draft_step_us);
  out += ", a step by draft tokens";
  for (const double us : report.step_us) out += fmt::format(" {:.0f}", us);
  out += " us";
  out += fmt::format(
      "\n\nMedians of {} rounds, each with and without in turn; every text was the same.\n",
      report.ratios.size());
  return out;
}

std::string as_json(const SpeculationReport& report) {
  const engine::SpeculationCounts& counts = report.counts;
  const Json out = {{"model", report.model},
                    {"type", report.type},
                    {"device", report.device},
                    {"threads", report.threads},
                    {"proposer", report.proposer},
                    {"sequences", report.sequences},
                    {"tokens", report.tokens},
                    {"width", report.width},
                    {"temperature", report.temperature},
                    {"plain_tokens_per_s", report.plain_tokens_per_s},
                    {"drafted_tokens_per_s", report.drafted_tokens_per_s},
                    {"ratios", report.ratios},
                    {"ratio", median(report.ratios)},
                    {"verifications", counts.verifications},
                    {"drafted_tokens", counts.drafted_tokens},
                    {"accepted_tokens", counts.accepted_tokens},
                    {"acceptance_by_place", by_place(counts)},
                    {"mean_accepted", mean_accepted(counts)},
                    {"saved_s", report.saved_s},
                    {"draft_step_us", report.draft_step_us},
                    {"step_us", report.step_us}};
  return ipc::dump_json(out) + "\n";
}

}  // namespace hearth::worker
