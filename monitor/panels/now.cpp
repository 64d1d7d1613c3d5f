#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "ipc/text/shown_text.h"
#include "kernels/base/numbers.h"
#include "monitor/draw/pixels.h"
#include "monitor/draw/plot.h"
#include "monitor/panels/panels.h"

namespace hearth::monitor {
namespace {

struct Totals {
  double prefill = 0, decode = 0, prompt = 0, cached = 0, restored = 0;
  int64_t running = 0, waiting = 0, preempted = 0;
  double drafted = 0, accepted = 0;
  uint64_t kv_bytes = 0;
};

Totals add_up(const Snapshot& snapshot) {
  Totals t;
  for (const ipc::WorkerStats& worker : snapshot.stats().workers) {
    const ipc::WorkerSnapshot& s = worker.snapshot;
    t.prefill += s.prefill_tokens_per_s;
    t.decode += s.decode_tokens_per_s;
    t.prompt += as_double(s.prompt_tokens_total);
    t.cached += as_double(s.prompt_tokens_cached);
    t.restored += as_double(s.prompt_tokens_restored);
    t.running += s.num_running;
    t.waiting += s.num_waiting;
    t.preempted += s.num_preempted;
    t.drafted += as_double(s.speculation.drafted_tokens);
    t.accepted += as_double(s.speculation.accepted_tokens);
    t.kv_bytes += s.kv_bytes;
  }
  return t;
}

double ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

void headlines(const Snapshot& snapshot, View& view, const ModelView* model) {
  const Totals t = add_up(snapshot);
  const Theme& theme = view.theme;
  const float gap = ImGui::GetStyle().ItemSpacing.x;
  const float width = (ImGui::GetContentRegionAvail().x - 5 * gap) / 6;
  const auto split = [](double value, std::string& text, std::string& unit) {
    text = value >= 1e4   ? fmt::format("{:.1f} k", value / 1e3)
           : value >= 100 ? fmt::format("{:.0f}", value)
                          : fmt::format("{:.1f}", value);
    unit = "tokens/s";
  };
  const double ceiling = view.ceilings.read_gb_per_s * 1e9;
  const double limit =
      model != nullptr && ceiling > 0 ? read_bytes_per_s(snapshot, *model) / ceiling : 0;
  std::string text, unit;
  // The figures below are those of the chosen model.
  const bool several = snapshot.stats().workers.size() > 1;
  split(t.decode, text, unit);
  headline(view, "now/decode", several ? "Decode, all models" : "Decode", text, unit,
           model == nullptr
               ? "no model in memory"
               : fmt::format("step {}{}", ms_text(model->stats.snapshot.step_ms_recent),
                             limit > 0 ? fmt::format("; {:.0f} % of limit", 100 * limit) : ""),
           theme.decode, width);
  ImGui::SameLine();
  split(t.prefill, text, unit);
  headline(view, "now/prefill", several ? "Prefill, all models" : "Prefill", text, unit,
           "prompt tokens computed", theme.prefill, width);
  ImGui::SameLine();
  headline(view, "now/requests", "Running", fmt::format("{}", t.running),
           t.running == 1 ? "sequence" : "sequences",
           fmt::format("{} wait, {} preempted", t.waiting, t.preempted),
           t.waiting + t.preempted > 0 ? theme.warn : theme.text, width);
  ImGui::SameLine();
  const bool any_ttft = snapshot.num_ttfts() > 0;
  headline(view, "now/ttft", "First token (p50)", any_ttft ? ms_text(snapshot.ttft_ms_p50()) : "–",
           "",
           any_ttft ? fmt::format("p99 {} of {} requests", ms_text(snapshot.ttft_ms_p99()),
                                  snapshot.num_ttfts())
                    : "no request yet",
           theme.text, width);
  ImGui::SameLine();
  const bool any_gap = model != nullptr && model->gaps.count() > 0;
  headline(
      view, "now/itl", "Between tokens (p50)", any_gap ? ms_text(model->gaps.ms(0.5)) : "–", "",
      any_gap ? fmt::format("p99 {}, last 30 s", ms_text(model->gaps.ms(0.99))) : "no gap in 30 s",
      theme.text, width);
  ImGui::SameLine();
  headline(view, "now/hits", "Prefix hits", fmt::format("{:.1f}", 100 * ratio(t.cached, t.prompt)),
           "%",
           fmt::format("memory {:.1f} %, disk {:.1f} %",
                       100 * ratio(std::max(0.0, t.cached - t.restored), t.prompt),
                       100 * ratio(t.restored, t.prompt)),
           theme.good, width);
}

/// Memory held by one model's worker; its blocks as a bar.
void memory_of(const Snapshot& snapshot, View& view, const ipc::WorkerStats& worker,
               const ModelView& reported) {
  const Theme& theme = view.theme;
  uint64_t weights = 0;
  std::string roles;
  for (const ipc::ModelEntry& entry : snapshot.models().models) {
    if (entry.name != worker.model) continue;
    weights = entry.weight_bytes;
    for (const std::string& role : entry.roles) roles += (roles.empty() ? "" : ", ") + role;
  }
  const std::string about =
      fmt::format("{}{}{} · {}", roles, roles.empty() ? "" : " · ", worker.device,
                  age_text(snapshot.now_us(), reported.stats_us));
  const float room = ImGui::GetContentRegionAvail().x;
  put_text(view, "now/memory/model", worker.model);
  // On the line of the name if both fit, else below it.
  ImGui::PushFont(view.fonts.small);
  const float both = ImGui::GetItemRectSize().x + ImGui::GetStyle().ItemSpacing.x +
                     ImGui::CalcTextSize(about.c_str()).x;
  ImGui::PopFont();
  if (both <= room) ImGui::SameLine();
  put_small(view, "now/memory/device", about, theme.faint);
  const ipc::WorkerSnapshot& s = worker.snapshot;
  put_small(view, "now/memory/bytes",
            fmt::format("weights {}, KV {} backed of {}, bound {}", ipc::human_bytes(weights),
                        ipc::human_bytes(s.kv_backed_bytes), ipc::human_bytes(s.kv_reserved_bytes),
                        ipc::human_bytes(s.kv_bound_bytes)),
            theme.muted);
  if (reported.resident_bytes > 0) {
    put_small(view, "now/memory/resident",
              fmt::format("the worker holds {}{}", ipc::human_bytes(reported.resident_bytes),
                          reported.power_mw > 0 ? fmt::format("; processors draw {:.1f} W",
                                                              as_double(reported.power_mw) / 1e3)
                                                : ""),
              theme.muted);
  }
  if (s.gpu) put_small(view, "now/memory/gpu", ipc::gpu_text(*s.gpu), theme.muted);
  for (size_t group = 0; group < s.kv_blocks_total.size() && group < 4; ++group) {
    const double total = s.kv_blocks_total[group];
    const double used = group < s.kv_blocks_used.size() ? s.kv_blocks_used[group] : 0;
    const double cached = group < s.kv_blocks_cached.size() ? s.kv_blocks_cached[group] : 0;
    const BarPart parts[] = {{used, theme.block[1]}, {cached, theme.block[3]}};
    stacked_bar(view, parts, total, {ImGui::GetContentRegionAvail().x, 12 * view.scale});
    put_small(view, fmt::format("now/memory/pool{}", group),
              fmt::format("{:.0f} in use, {:.0f} cached of {:.0f} blocks ({:.0f} % full)", used,
                          cached, total, 100 * ratio(used, total)),
              theme.muted);
  }
}

void memory(const Snapshot& snapshot, View& view, const ModelView* shown) {
  if (snapshot.stats().workers.empty()) return nothing_yet(view, "no model in memory");
  for (const ipc::WorkerStats& worker : snapshot.stats().workers) {
    const auto found = snapshot.model_views().find(worker.model);
    if (found != snapshot.model_views().end()) {
      memory_of(snapshot, view, worker, found->second);
    }
  }
  // The remaining room shows plots of memory and power over time.
  if (shown == nullptr) return;
  const float gap = ImGui::GetStyle().ItemSpacing.y;
  const ImVec2 room = ImGui::GetContentRegionAvail();
  std::vector<Line> power;
  if (!shown->power.empty()) {
    power.push_back({"processors", &shown->power, view.theme.warn, true});
  }
  if (!shown->gpu_power.empty()) {
    power.push_back({"GPU", &shown->gpu_power, view.theme.decode, power.empty()});
  }
  const int plots = (shown->memory.empty() ? 0 : 1) + (power.empty() ? 0 : 1);
  const float height = (room.y - gap * pixels(plots)) / pixels(std::max(1, plots));
  if (plots == 0 || height < 74 * view.scale) return;
  if (!shown->memory.empty()) {
    const Line lines[] = {{"held", &shown->memory, view.theme.block[1], true}};
    plot(view, "now/held", lines, snapshot.now_us(), {.unit = "GiB"}, {room.x, height});
  }
  if (!power.empty()) {
    plot(view, "now/power", power, snapshot.now_us(), {.unit = "W"}, {room.x, height});
  }
}

/// Sources of prompt tokens and accepted drafts, since the models were loaded.
void cache_and_drafts(const Snapshot& snapshot, View& view) {
  const Totals t = add_up(snapshot);
  const ImVec2 bar{ImGui::GetContentRegionAvail().x, 12 * view.scale};
  ImGui::PushFont(view.fonts.small);
  prompt_tiers(view, "now/tiers", t.prompt, std::max(0.0, t.cached - t.restored), t.restored, bar);
  const BarPart drafts[] = {{t.accepted, view.theme.good}};
  stacked_bar(view, drafts, t.drafted, bar);
  legend(view, view.theme.good, "");
  ImGui::SameLine(0, 5 * view.scale);
  put_text(view, "now/acceptance",
           t.drafted > 0
               ? fmt::format("accepted {} of {}", percent_text(ratio(t.accepted, t.drafted)),
                             with_unit(t.drafted, "tokens"))
               : "no token was drafted yet",
           view.theme.muted);
  ImGui::PopFont();
}

void waiting_list(const Snapshot& snapshot, View& view) {
  int shown = 0;
  for (const auto& [number, request] : snapshot.requests()) {
    const ipc::WatchedRequest& row = request.row;
    if (request.ended ||
        (row.state != "queued" && row.state != "waiting" && row.state != "recovering")) {
      continue;
    }
    if (++shown > 6) continue;
    legend(view, view.theme.of_request(number), "");
    ImGui::SameLine(0, 6 * view.scale);
    put_text(view, fmt::format("now/waits/{}", shown), row.id);
    ImGui::SameLine();
    put_small(view, fmt::format("now/waits/{}/why", shown),
              fmt::format("for {}{}, {}", row.waiting_for.empty() ? "its turn" : row.waiting_for,
                          row.estimate_ms > 0
                              ? fmt::format(" (about {})", ms_text(as_double(row.estimate_ms)))
                              : "",
                          ms_text(as_double(row.age_ms))),
              view.theme.muted);
  }
  if (shown == 0) put_small(view, "now/waits/none", "none waiting", view.theme.good);
  if (shown > 6) {
    put_small(view, "now/waits/more", fmt::format("and {} more", shown - 6), view.theme.muted);
  }
}

/// Left: lines over time.
void lines_over_time(const Snapshot& snapshot, View& view, const ModelView* model, float width,
                     float upper) {
  const Theme& theme = view.theme;
  if (begin_card(view, "Throughput", {width, upper}, "last 2 minutes")) {
    if (model == nullptr) {
      nothing_yet(view, "no model in memory: it is loaded on request");
    } else {
      const Line lines[] = {{"decode", &model->decode_rate, theme.decode, true},
                            {"prefill", &model->prefill_rate, theme.prefill}};
      plot(view, "now/throughput", lines, snapshot.now_us(),
           {.unit = "tokens/s", .marks = &snapshot.marks()}, ImGui::GetContentRegionAvail());
    }
  }
  end_card();
  const float half = (width - ImGui::GetStyle().ItemSpacing.x) / 2;
  if (begin_card(view, "Sequences", {half, 0}) && model != nullptr) {
    const Line lines[] = {{"running", &model->running, theme.decode, true},
                          {"waiting", &model->waiting, theme.warn},
                          {"preempted", &model->preempted, theme.bad}};
    plot(view, "now/sequences", lines, snapshot.now_us(), {.min_top = 4},
         ImGui::GetContentRegionAvail());
  }
  end_card();
  ImGui::SameLine();
  if (begin_card(view, "Between tokens", {half, 0}, "and steps") && model != nullptr) {
    const Line lines[] = {{"p50", &model->gap_ms_p50, theme.accent, true},
                          {"p99", &model->gap_ms_p99, theme.warn},
                          {"step", &model->step_ms, theme.muted}};
    plot(view, "now/gaps", lines, snapshot.now_us(), {.unit = "ms"},
         ImGui::GetContentRegionAvail());
  }
  end_card();
}

}  // namespace

void draw_now(const Snapshot& snapshot, View& view) {
  const ModelView* model = view.shown_model(snapshot);
  choose_model(view, snapshot);
  headlines(snapshot, view, model);
  const ImVec2 room = ImGui::GetContentRegionAvail();
  const float gap = ImGui::GetStyle().ItemSpacing.x;
  const float left = (room.x - gap) * 0.66f;
  const float upper = (room.y - ImGui::GetStyle().ItemSpacing.y) * 0.56f;
  ImGui::BeginGroup();
  lines_over_time(snapshot, view, model, left, upper);
  ImGui::EndGroup();
  ImGui::SameLine();
  ImGui::BeginGroup();
  if (begin_card(view, "Memory", {0, upper})) memory(snapshot, view, model);
  end_card();
  if (begin_card(view, "Prompts and drafts", {0, 128 * view.scale}, "since loading")) {
    cache_and_drafts(snapshot, view);
  }
  end_card();
  if (begin_card(view, "Waiting, and why", {0, 0})) waiting_list(snapshot, view);
  end_card();
  ImGui::EndGroup();
}

}  // namespace hearth::monitor
