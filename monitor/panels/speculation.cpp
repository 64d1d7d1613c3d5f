#include <fmt/core.h>

#include <algorithm>

#include "kernels/base/numbers.h"
#include "monitor/draw/pixels.h"
#include "monitor/draw/plot.h"
#include "monitor/panels/panels.h"

namespace hearth::monitor {
namespace {

/// One bar per position among a step's drafted tokens: how many were drafted, how many accepted.
void by_position(View& view, const ipc::SpeculationStats& stats) {
  const Theme& theme = view.theme;
  const float scale = view.scale;
  size_t places = 0;
  double most = 1;
  for (size_t i = 0; i < stats.drafted_at.size() && i < 16; ++i) {
    if (stats.drafted_at[i] > 0) places = i + 1;
    most = std::max(most, as_double(stats.drafted_at[i]));
  }
  if (places == 0) return nothing_yet(view, "no token was drafted yet");
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const ImVec2 room = ImGui::GetContentRegionAvail();
  const float label = 30 * scale;
  const float left = at.x, right = at.x + room.x;
  const float top = at.y + 18 * scale, bottom = at.y + room.y - label;
  ImDrawList* draw = ImGui::GetWindowDrawList();
  draw->AddLine({left, bottom}, {right, bottom}, theme.line);
  const float step = (right - left) / pixels(places);
  ImGui::PushFont(view.fonts.small);
  for (size_t i = 0; i < places; ++i) {
    const double drafted = as_double(stats.drafted_at[i]);
    const double accepted = i < stats.accepted_at.size() ? as_double(stats.accepted_at[i]) : 0;
    const float x = left + step * pixels(i);
    const float width = std::min(step * 0.7f, 60 * scale);
    const auto y_of = [&](double count) {
      return bottom - pixels(std::clamp(count / most, 0.0, 1.0)) * (bottom - top);
    };
    draw->AddRectFilled({x, y_of(drafted)}, {x + width, bottom}, with_alpha(theme.draft, 0.35f),
                        2 * scale);
    draw->AddRectFilled({x, y_of(accepted)}, {x + width, bottom}, theme.good, 2 * scale);
    ImGui::SetCursorScreenPos({x, bottom + 4 * scale});
    put_text(view, fmt::format("speculation/place/{}", i + 1),
             fmt::format("{}.  {:.0f} %", i + 1, drafted > 0 ? 100 * accepted / drafted : 0),
             theme.muted);
    const std::string count = with_unit(drafted, "");
    draw->AddText({x, y_of(drafted) - ImGui::GetTextLineHeight() - 2 * scale}, theme.faint,
                  count.c_str());
  }
  ImGui::PopFont();
}

void by_proposer(View& view, const ipc::SpeculationStats& stats) {
  for (const ipc::ProposerStats& by : stats.by) {
    put_small(
        view, "speculation/by/" + by.name,
        fmt::format("{}: {} of {} accepted", by.name, with_unit(as_double(by.accepted_tokens), ""),
                    with_unit(as_double(by.drafted_tokens), "drafted")),
        view.theme.muted);
  }
}

}  // namespace

void draw_speculation(const Snapshot& snapshot, View& view) {
  choose_model(view, snapshot);
  const ModelView* model = view.shown_model(snapshot);
  if (model == nullptr) return nothing_yet(view, "no model in memory");
  const ipc::SpeculationStats& stats = model->stats.snapshot.speculation;
  const double drafted = as_double(stats.drafted_tokens);
  const double accepted = as_double(stats.accepted_tokens);
  const double verified = as_double(stats.verifications);
  const float gap = ImGui::GetStyle().ItemSpacing.x;
  const float width = (ImGui::GetContentRegionAvail().x - 3 * gap) / 4;
  const Theme& theme = view.theme;
  headline(view, "speculation/acceptance", "Drafted tokens accepted",
           drafted > 0 ? fmt::format("{:.1f}", 100 * accepted / drafted) : "–", "%",
           "since loading; heard " + age_text(snapshot.now_us(), model->stats_us), theme.good,
           width);
  ImGui::SameLine();
  headline(view, "speculation/width", "Drafted at a time",
           verified > 0 ? fmt::format("{:.2f}", drafted / verified) : "–", "tokens",
           "mean of verifications", theme.text, width);
  ImGui::SameLine();
  headline(view, "speculation/gain", "Gained at a time",
           verified > 0 ? fmt::format("{:.2f}", accepted / verified) : "–", "tokens",
           "steps saved per verification", theme.text, width);
  ImGui::SameLine();
  headline(view, "speculation/saved", "Time saved", fmt::format("{:.1f}", stats.saved_ms / 1000),
           "s", fmt::format("estimate; {}", with_unit(accepted, "decode steps")), theme.accent,
           width);
  const float half = (ImGui::GetContentRegionAvail().x - gap) / 2;
  if (begin_card(view, "Acceptance by position", {half, 0},
                 "tokens drafted (pale) and right (full), by place in the step")) {
    by_proposer(view, stats);
    by_position(view, stats);
  }
  end_card();
  ImGui::SameLine();
  const float upper = (ImGui::GetContentRegionAvail().y - ImGui::GetStyle().ItemSpacing.y) / 2;
  ImGui::BeginGroup();
  if (begin_card(view, "Acceptance", {0, upper}, "last 10 minutes")) {
    const Line lines[] = {{"accepted", &model->acceptance, theme.good, true}};
    plot(view, "speculation/rate", lines, snapshot.now_us(),
         {.window_s = 600, .max = 1, .as_percent = true}, ImGui::GetContentRegionAvail());
  }
  end_card();
  if (begin_card(view, "Width", {0, 0}, "drafted tokens per verification, last 10 minutes")) {
    const Line lines[] = {{"width", &model->width, theme.draft, true}};
    plot(view, "speculation/widths", lines, snapshot.now_us(), {.unit = "tokens", .window_s = 600},
         ImGui::GetContentRegionAvail());
  }
  end_card();
  ImGui::EndGroup();
}

}  // namespace hearth::monitor
