#include "monitor/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace hearth::monitor {
namespace {

std::string tick_text(double value, const PlotOptions& options) {
  if (options.as_percent) return fmt::format("{:.0f} %", 100 * value);
  if (value >= 1e6) return fmt::format("{:.3g} M", value / 1e6);
  if (value >= 1e4) return fmt::format("{:.3g} k", value / 1e3);
  return fmt::format("{:.{}f}", value, value == std::floor(value) ? 0 : value < 10 ? 2 : 1);
}

double tick_step_s(double window_s) {
  for (const double step : {1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0}) {
    if (window_s / step <= 7) return step;
  }
  return 300;
}

}  // namespace

double nice_ceiling(double value) {
  if (!(value > 0)) return 1;
  const double power = std::pow(10.0, std::floor(std::log10(value)));
  for (const double step : {1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0}) {
    if (value <= step * power * 1.0001) return step * power;
  }
  return 10 * power;
}

void plot(View& view, const char* place, std::span<const Line> lines, int64_t now_us,
          const PlotOptions& options, ImVec2 size) {
  const Theme& theme = view.theme;
  const float scale = view.scale;
  ImGui::PushFont(view.fonts.small);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) ImGui::SameLine(0, 14 * scale);
    const Series& series = *lines[i].series;
    const std::string value = series.empty()
                                  ? "–"
                                  : (options.as_percent ? percent_text(series.last())
                                                        : with_unit(series.last(), options.unit));
    legend(view, lines[i].colour, "");
    ImGui::SameLine(0, 5 * scale);
    put_text(view, fmt::format("{}/legend/{}", place, lines[i].label),
             fmt::format("{}  {}", lines[i].label, value), theme.muted);
  }
  const ImVec2 top = ImGui::GetCursorScreenPos();
  const float legend_height = lines.empty() ? 0 : ImGui::GetTextLineHeightWithSpacing();
  const float height = std::max(30 * scale, size.y - legend_height);
  ImGui::Dummy({size.x, height});
  ImDrawList* draw = ImGui::GetWindowDrawList();

  double max = options.max;
  if (max <= 0) {
    for (const Line& line : lines) {
      for (size_t i = 0; i < line.series->size(); ++i) {
        const Series::Point point = (*line.series)[i];
        if (static_cast<double>(now_us - point.time_us) / 1e6 <= options.window_s) {
          max = std::max(max, point.value);
        }
      }
    }
    max = nice_ceiling(std::max(max * 1.05, options.ceiling));
  }

  const float left = top.x + 46 * scale;
  const float right = top.x + size.x - 6 * scale;
  const float upper = top.y + 6 * scale;
  const float lower = top.y + height - 17 * scale;
  if (right - left < 20 || lower - upper < 10) {
    ImGui::PopFont();
    return;
  }
  const auto x_of = [&](int64_t time_us) {
    const double age_s = static_cast<double>(now_us - time_us) / 1e6;
    return right - static_cast<float>(age_s / options.window_s) * (right - left);
  };
  const auto y_of = [&](double value) {
    return lower - static_cast<float>(std::clamp(value / max, 0.0, 1.0)) * (lower - upper);
  };
  // Three lines of the grid, the top one with the unit.
  const int divisions = lower - upper > 90 * scale ? 4 : 2;
  for (int i = 0; i <= divisions; ++i) {
    const double value = max * i / divisions;
    const float y = y_of(value);
    draw->AddLine({left, y}, {right, y}, i == 0 ? theme.line : theme.grid);
    const std::string text = tick_text(value, options);
    const ImVec2 extent = ImGui::CalcTextSize(text.c_str());
    draw->AddText({left - 6 * scale - extent.x, y - extent.y / 2}, theme.faint, text.c_str());
    if (view.drawn != nullptr) {
      view.drawn->push_back({fmt::format("{}/axis/y{}", place, i),
                             text,
                             {left - 6 * scale - extent.x, y - extent.y / 2},
                             {left - 6 * scale, y + extent.y / 2}});
    }
  }
  for (double age = 0; age <= options.window_s; age += tick_step_s(options.window_s)) {
    const float x = right - static_cast<float>(age / options.window_s) * (right - left);
    draw->AddLine({x, lower}, {x, lower + 3 * scale}, theme.line);
    const std::string text = age == 0     ? "now"
                             : age >= 120 ? fmt::format("−{:.0f} min", age / 60)
                                          : fmt::format("−{:.0f} s", age);
    const ImVec2 extent = ImGui::CalcTextSize(text.c_str());
    const float at = std::clamp(x - extent.x / 2, top.x, right - extent.x);
    draw->AddText({at, lower + 3 * scale}, theme.faint, text.c_str());
    if (view.drawn != nullptr) {
      view.drawn->push_back({fmt::format("{}/axis/x{:.0f}", place, age),
                             text,
                             {at, lower + 3 * scale},
                             {at + extent.x, lower + 3 * scale + extent.y}});
    }
  }
  if (options.ceiling > 0) {
    const float y = y_of(options.ceiling);
    draw->AddLine({left, y}, {right, y}, theme.bad, scale);
    draw->AddText({left + 4 * scale, y + 1}, theme.bad, options.ceiling_label);
  }

  // Neighbouring pieces of a filled area meet without a seam only where their edges are sharp.
  const ImDrawListFlags flags = draw->Flags;
  draw->PushClipRect({left, upper - 2}, {right + 1, lower + 1}, true);
  const ImVec2 mouse = ImGui::GetIO().MousePos;
  const bool hovered = ImGui::IsItemHovered() && mouse.x >= left && mouse.x <= right;
  std::string tip;
  static thread_local std::vector<ImVec2> points;
  for (const Line& line : lines) {
    points.clear();
    const Series& series = *line.series;
    float closest = 1e9f;
    double at_mouse = 0;
    for (size_t i = 0; i < series.size(); ++i) {
      const Series::Point point = series[i];
      const float x = x_of(point.time_us);
      if (x < left - 40 * scale) continue;
      // A hole in time is a hole in the line.
      if (!points.empty() && i > 0 && point.time_us - series[i - 1].time_us > 2'000'000) {
        draw->AddPolyline(points.data(), static_cast<int>(points.size()), line.colour, 0,
                          1.6f * scale);
        points.clear();
      }
      points.push_back({x, y_of(point.value)});
      if (std::abs(x - mouse.x) < closest) {
        closest = std::abs(x - mouse.x);
        at_mouse = point.value;
      }
      if (line.filled && points.size() > 1) {
        const ImVec2 a = points[points.size() - 2], b = points.back();
        draw->Flags = flags & ~ImDrawListFlags_AntiAliasedFill;
        draw->AddQuadFilled(a, b, {b.x, lower}, {a.x, lower}, with_alpha(line.colour, 0.16f));
        draw->Flags = flags;
      }
    }
    if (points.size() > 1) {
      draw->AddPolyline(points.data(), static_cast<int>(points.size()), line.colour, 0,
                        1.6f * scale);
    } else if (points.size() == 1) {
      draw->AddCircleFilled(points[0], 2 * scale, line.colour);
    }
    if (hovered && closest < 8 * scale) {
      tip += fmt::format(
          "{}{}: {}", tip.empty() ? "" : "\n", line.label,
          options.as_percent ? percent_text(at_mouse) : with_unit(at_mouse, options.unit));
    }
  }
  if (hovered) draw->AddLine({mouse.x, upper}, {mouse.x, lower}, theme.faint);
  draw->PopClipRect();
  ImGui::PopFont();
  if (!tip.empty()) {
    const double age = (right - mouse.x) / (right - left) * options.window_s;
    ImGui::SetTooltip("%s\n%.1f s ago", tip.c_str(), age);
  }
}

}  // namespace hearth::monitor
