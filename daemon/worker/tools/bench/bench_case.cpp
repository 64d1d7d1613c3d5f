#include "daemon/worker/tools/bench/bench_case.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "ipc/text/shown_text.h"
#include "ipc/wire/json.h"
#include "kernels/base/numbers.h"

namespace hearth::worker {
namespace {

using ipc::Json;

double quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return values[std::lround(q * as_double(values.size() - 1))];
}

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return values[values.size() / 2];
}

std::string BenchCase::name() const {
  if (kind == Kind::kPrefill) return fmt::format("prefill {}", prompt);
  if (sequences > 1) return fmt::format("decode, {} sequences", sequences);
  return prompt > 64 ? fmt::format("decode at {}", prompt) : "decode";
}

std::vector<BenchCase> bench_cases(bool quick, bool gpu, int32_t model_context, int32_t context) {
  using Kind = BenchCase::Kind;
  const int32_t tokens = quick ? 32 : 64;
  std::vector<BenchCase> all = {
      {Kind::kDecode, 1, 32, tokens}, {Kind::kPrefill, 1, 128, 1},
      {Kind::kPrefill, 1, 512, 1},    {Kind::kDecode, 4, 32, tokens},
      {Kind::kDecode, 8, 32, tokens}, {Kind::kDecode, 16, 32, tokens / 2}};
  if (gpu) {
    all.push_back({Kind::kDecode, 32, 32, tokens / 2});
    all.push_back({Kind::kPrefill, 1, 4096, 1});
  }
  if (!quick) {
    all.push_back({Kind::kPrefill, 1, 8000, 1});
    all.push_back({Kind::kDecode, 1, 4096, 32});
    all.push_back({Kind::kDecode, 1, 8000, 32});
  }
  if (context > 0) all.push_back({Kind::kDecode, 1, context, 32});
  std::erase_if(all, [&](const BenchCase& each) { return each.context() > model_context; });
  return all;
}

double CaseResult::median_seconds() const { return median(seconds); }

double CaseResult::tokens_per_s() const {
  const double each = median_seconds();
  if (each <= 0) return 0;
  const bool prefill = what.kind == BenchCase::Kind::kPrefill;
  return (prefill ? what.prompt : what.sequences) / each;
}

Share share_of(const BenchReport& report, const CaseResult& result) {
  const BenchCase& what = result.what;
  StepWork work;
  if (what.kind == BenchCase::Kind::kPrefill) {
    // Each row attends to all earlier ones.
    work = step_work(report.work, report.kv_type, what.prompt, 1, 1, (what.prompt + 1) / 2.0);
  } else {
    work = step_work(report.work, report.kv_type, what.sequences, what.sequences, what.sequences,
                     what.prompt + what.tokens / 2.0);
  }
  const Bound bound = least_time(work, report.work.quantized, report.ceilings);
  const double seconds = result.median_seconds();
  return {seconds > 0 ? bound.seconds / seconds : 0, bound.by};
}

std::string as_text(const BenchReport& report) {
  const double half = report.ceilings.half_ops_per_s;
  std::string out = fmt::format(
      "{}, {}, {} parameters, {}\n{}, {} threads; KV as {}; numerics {}\n"
      "ceilings: read {:.1f} GB/s, f32 {:.0f} Gop/s, int8 {:.0f} Gop/s{}\n\n",
      ipc::one_line(report.model, 100), report.type, ipc::human_count(report.parameters),
      ipc::human_bytes(report.weight_bytes), ipc::one_line(report.device, 100), report.threads,
      kernels::kv_type_name(report.kv_type), report.numerics,
      report.ceilings.read_bytes_per_s / 1e9, report.ceilings.f32_ops_per_s / 1e9,
      report.ceilings.int8_ops_per_s / 1e9,
      half > 0 ? fmt::format(", f16 {:.0f} Gop/s", half / 1e9) : "");
  out += fmt::format("{:<24} {:>12} {:>12}   {}\n", "", "tokens/s", "ms", "of the ceiling");
  for (const CaseResult& result : report.cases) {
    const Share share = share_of(report, result);
    out += fmt::format("{:<24} {:>12.1f} {:>12.2f}   {:.0f} % of {}\n", result.what.name(),
                       result.tokens_per_s(), result.median_seconds() * 1e3, 100 * share.of_ceiling,
                       share.bound);
  }
  out += fmt::format(
      "\nMedians of {} interleaved rounds. ms: a decode step, a whole prompt. The ceiling is the "
      "least time\nthat reading (weights once, KV) or computing takes at the rates above.\n",
      report.rounds);
  for (const CaseResult& result : report.cases) {
    if (result.gaps_us.empty()) continue;
    out += fmt::format("{}: idle between two steps {:.1f} us (p50), {:.1f} us (p95), {} gaps\n",
                       result.what.name(), quantile(result.gaps_us, 0.5),
                       quantile(result.gaps_us, 0.95), result.gaps_us.size());
  }
  return out;
}

std::string as_json(const BenchReport& report) {
  Json out = Json::object();
  out["model"] = report.model;
  out["type"] = report.type;
  out["parameters"] = report.parameters;
  out["weight_bytes"] = report.weight_bytes;
  out["device"] = report.device;
  out["threads"] = report.threads;
  out["kv_type"] = kernels::kv_type_name(report.kv_type);
  out["numerics"] = report.numerics;
  out["rounds"] = report.rounds;
  Json ceilings = Json::object();
  ceilings["read_bytes_per_s"] = report.ceilings.read_bytes_per_s;
  ceilings["f32_ops_per_s"] = report.ceilings.f32_ops_per_s;
  ceilings["int8_ops_per_s"] = report.ceilings.int8_ops_per_s;
  if (report.ceilings.half_ops_per_s > 0)
    ceilings["f16_ops_per_s"] = report.ceilings.half_ops_per_s;
  out["ceilings"] = std::move(ceilings);
  Json cases = Json::array();
  for (const CaseResult& result : report.cases) {
    const Share share = share_of(report, result);
    Json each = Json::object();
    each["case"] = result.what.name();
    const bool prefill = result.what.kind == BenchCase::Kind::kPrefill;
    each["kind"] = prefill ? "prefill" : "decode";
    each["sequences"] = result.what.sequences;
    each["prompt"] = result.what.prompt;
    if (!prefill) each["tokens"] = result.what.tokens;
    each["tokens_per_s"] = result.tokens_per_s();
    each["seconds"] = result.median_seconds();
    each["share"] = share.of_ceiling;
    each["bound"] = share.bound;
    each["rounds"] = result.seconds;
    if (!result.gaps_us.empty()) {
      each["idle_us_p50"] = quantile(result.gaps_us, 0.5);
      each["idle_us_p95"] = quantile(result.gaps_us, 0.95);
    }
    cases.push_back(std::move(each));
  }
  out["cases"] = std::move(cases);
  return ipc::dump_json(out) + "\n";
}

}  // namespace hearth::worker
