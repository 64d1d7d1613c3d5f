// Work of each recent step compared with the device's ceilings. Operations: 2 per parameter that a
// row uses. Bytes: the weights that at least one row uses, once each. KV, norms and the like are
// left out, so this suits short contexts.

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "ipc/text/shown_text.h"
#include "kernels/base/numbers.h"
#include "monitor/draw/pixels.h"
#include "monitor/panels/panels.h"

namespace hearth::monitor {
namespace {

struct Point {
  double intensity;  ///< operations per byte
  double gops;
  bool decode;
};

std::vector<Point> points_of(const ModelView& model, const ipc::ModelEntry& entry) {
  std::vector<Point> points;
  const ipc::ExpertUse experts = entry.experts.value_or(ipc::ExpertUse{});
  const auto parameters =
      as_double(entry.num_parameters - std::min(entry.num_parameters, experts.unused_parameters));
  for (auto step = model.steps.rbegin(); step != model.steps.rend() && points.size() < 600;
       ++step) {
    double rows = as_double(step->decode_rows) + step->draft_rows;
    const bool decode = step->prefills.empty();
    for (const ipc::WatchedChunk& chunk : step->prefills) rows += chunk.tokens;
    if (rows <= 0 || step->duration_us <= 0) continue;
    const double bytes = std::max(1.0, step_weight_bytes(entry, rows));
    const double ops = 2 * parameters * rows;
    points.push_back({ops / bytes, ops / as_double(step->duration_us) / 1e3, decode});
  }
  return points;
}

/// Formats 10^power, e.g. "100 G".
std::string power_of_ten(double power) {
  constexpr const char* kPrefixes[] = {"", " k", " M", " G", " T", " P"};
  const auto thousands = static_cast<size_t>(std::clamp(std::floor(power / 3), 0.0, 5.0));
  return fmt::format("{:g}{}", std::pow(10, power - 3 * as_double(thousands)),
                     kPrefixes[thousands]);
}

}  // namespace

void draw_roofline(const Snapshot& snapshot, View& view) {
  choose_model(view, snapshot);
  const ModelView* model = view.shown_model(snapshot);
  const ipc::ModelEntry* entry = nullptr;
  for (const ipc::ModelEntry& each : snapshot.models().models) {
    if (model != nullptr && each.name == model->name && each.weight_bytes > 0) entry = &each;
  }
  const bool ceilings = view.ceilings.read_gb_per_s > 0 && view.ceilings.gop_per_s > 0;
  if (!begin_card(view, "Roofline", {0, 0},
                  "one point per step: work done against work per byte")) {
    return end_card();
  }
  if (entry == nullptr) {
    nothing_yet(view, "no model in memory");
    return end_card();
  }
  const Theme& theme = view.theme;
  const float scale = view.scale;
  put_text(view, "roofline/ceilings",
           ceilings ? fmt::format("ceilings: read {:.1f} GB/s, {:.0f} Gop/s",
                                  view.ceilings.read_gb_per_s, view.ceilings.gop_per_s)
                    : "ceilings not known: measure them, or give them with --ceilings READ,OPS",
           ceilings ? theme.muted : theme.warn);
  if (view.ask) {
    ImGui::SameLine(0, 14 * scale);
    if (!view.planning.empty()) {
      put_small(view, "roofline/measuring", "measuring ...", theme.muted);
    } else if (small_button(view, "roofline/measure", "Measure now")) {
      view.planning = entry->name;
      view.ask({Command::Kind::kPlan, entry->name, ""});
    }
    if (ImGui::IsItemHovered()) {
      ImGui::SetTooltip(
          "uses the whole machine for some seconds; other work makes the result too low");
    }
  }
  legend(view, theme.decode, "decode steps");
  ImGui::SameLine(0, 16 * scale);
  legend(view, theme.prefill, "steps with prefill");
  const std::vector<Point> points = points_of(*model, *entry);
  double best_gops = 1, best_share = 0;
  for (const Point& point : points) {
    best_gops = std::max(best_gops, point.gops);
    if (ceilings) {
      const double roof =
          std::min(view.ceilings.gop_per_s, view.ceilings.read_gb_per_s * point.intensity);
      best_share = std::max(best_share, point.gops / roof);
    }
  }
  if (ceilings && !points.empty()) {
    ImGui::SameLine(0, 16 * scale);
    put_text(view, "roofline/best", fmt::format("best: {} of the roof", percent_text(best_share)),
             theme.muted);
  }
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const ImVec2 room = ImGui::GetContentRegionAvail();
  const ImVec2 min{at.x + 56 * scale, at.y + 8 * scale};
  const ImVec2 max{at.x + room.x - 10 * scale, at.y + room.y - 36 * scale};
  // Both axes in powers of ten.
  const double x0 = -1, x1 = 4;
  const double top = std::max(best_gops, view.ceilings.gop_per_s);
  const double y1 = std::ceil(std::log10(top) + 0.1), y0 = y1 - 5;
  const auto x_of = [&](double intensity) {
    return min.x +
           pixels((std::log10(std::max(intensity, 1e-6)) - x0) / (x1 - x0)) * (max.x - min.x);
  };
  const auto y_of = [&](double gops) {
    return max.y - pixels((std::log10(std::max(gops, 1e-9)) - y0) / (y1 - y0)) * (max.y - min.y);
  };
  ImDrawList* draw = ImGui::GetWindowDrawList();
  ImGui::PushFont(view.fonts.small);
  for (double power = x0; power <= x1; ++power) {
    const float x = x_of(std::pow(10, power));
    draw->AddLine({x, min.y}, {x, max.y}, theme.grid);
    const std::string text = fmt::format("{:g}", std::pow(10, power));
    const float wide = ImGui::CalcTextSize(text.c_str()).x;
    ImGui::SetCursorScreenPos({std::min(x - wide / 2, max.x - wide), max.y + 3 * scale});
    put_text(view, fmt::format("roofline/axis/x{:.0f}", power), text, theme.faint);
  }
  for (double power = y0; power <= y1; ++power) {
    const float y = y_of(std::pow(10, power));
    draw->AddLine({min.x, y}, {max.x, y}, theme.grid);
    ImGui::SetCursorScreenPos({at.x, y - 7 * scale});
    put_text(view, fmt::format("roofline/axis/y{:.0f}", power), power_of_ten(power + 9),
             theme.faint);
  }
  ImGui::SetCursorScreenPos({(min.x + max.x) / 2 - 70 * scale, max.y + 17 * scale});
  put_text(view, "roofline/axis/x", "operations per byte read", theme.muted);
  ImGui::SetCursorScreenPos({min.x + 6 * scale, min.y});
  put_text(view, "roofline/axis/y", "operations per second", theme.muted);
  draw->PushClipRect(min, max, true);
  if (ceilings) {
    const double knee = view.ceilings.gop_per_s / view.ceilings.read_gb_per_s;
    draw->AddLine({x_of(0.1), y_of(view.ceilings.read_gb_per_s * 0.1)},
                  {x_of(knee), y_of(view.ceilings.gop_per_s)}, theme.bad, 1.5f * scale);
    draw->AddLine({x_of(knee), y_of(view.ceilings.gop_per_s)},
                  {max.x, y_of(view.ceilings.gop_per_s)}, theme.bad, 1.5f * scale);
  }
  for (const Point& point : points) {
    draw->AddCircleFilled({x_of(point.intensity), y_of(point.gops)}, 2.4f * scale,
                          with_alpha(point.decode ? theme.decode : theme.prefill, 0.6f), 8);
  }
  draw->PopClipRect();
  ImGui::PopFont();
  end_card();
}

}  // namespace hearth::monitor
