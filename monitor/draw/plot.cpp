#include "monitor/draw/plot.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "kernels/base/numbers.h"
#include "kernels/base/sizes.h"
#include "monitor/draw/pixels.h"

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

/// The values of a series that fall in one column of pixels.
struct Column {
  float x = 0;
  double sum = 0, low = 0, high = 0;
  int count = 0;
  bool begins = false;  ///< follows a gap in time: the line is interrupted
  double mean() const { return sum / count; }
};

template <class XOf>
void columns_of(const Series& series, const XOf& x_of, float left, std::vector<Column>& out) {
  constexpr int64_t kHoleUs = 2'000'000;
  out.clear();
  for (size_t i = 0; i < series.size(); ++i) {
    const Series::Point point = series[i];
    const float x = x_of(point.time_us);
    if (x < left - 2) continue;
    const bool hole = !out.empty() && point.time_us - series[i - 1].time_us > kHoleUs;
    if (out.empty() || hole || x - out.back().x >= 1) {
      out.push_back({x, point.value, point.value, point.value, 1, hole});
      continue;
    }
    Column& last = out.back();
    last.sum += point.value;
    last.low = std::min(last.low, point.value);
    last.high = std::max(last.high, point.value);
    ++last.count;
  }
}

/// Draws a vertical line per mark, with its text if there is room.
void draw_marks(View& view, const char* place, const std::deque<Mark>& marks, int64_t now_us,
                double window_s, ImVec2 min, ImVec2 max) {
  ImDrawList* draw = ImGui::GetWindowDrawList();
  // The latest first: of several marks at one time it is the most informative.
  float words_begin = max.x;
  for (auto each = marks.rbegin(); each != marks.rend(); ++each) {
    const Mark& mark = *each;
    const double age_s = us_as_s(now_us - mark.time_us);
    if (age_s > window_s) continue;
    const float x = max.x - pixels(age_s / window_s) * (max.x - min.x);
    draw->AddLine({x, min.y}, {x, max.y}, with_alpha(view.theme.text, 0.45f));
    const float width = ImGui::CalcTextSize(mark.text.c_str()).x;
    const float right = x + 4 * view.scale, left = x - width - 4 * view.scale;
    const float at = right + width < words_begin ? right : left;
    if (at < min.x || at + width >= words_begin) continue;
    words_begin = std::min(x, at) - 6 * view.scale;
    draw->AddText({at, min.y}, view.theme.muted, mark.text.c_str());
    if (view.drawn == nullptr) continue;
    view.drawn->push_back({fmt::format("{}/mark/{}", place, mark.text),
                           mark.text,
                           {at, min.y},
                           {at + width, min.y + ImGui::GetTextLineHeight()}});
  }
}

}  // namespace

int nice_divisions(double top, bool many) {
  const double mantissa = top > 0 ? top / std::pow(10.0, std::floor(std::log10(top) + 1e-9)) : 1;
  const auto is = [mantissa](double value) { return std::abs(mantissa - value) < 1e-6; };
  if (is(1.5) || is(3) || is(7.5)) return 3;
  if (!many) return 2;
  return is(1) || is(5) ? 5 : 4;
}

std::string axis_age_text(double age_s) {
  if (age_s < 0.0005) return "now";
  if (age_s < 1) return fmt::format("−{:.0f} ms", age_s * 1000);
  const bool minutes = age_s >= 100;
  const double age = minutes ? age_s / 60 : age_s;
  const double rounded = std::round(age * 100) / 100;
  return fmt::format("−{:g} {}", rounded, minutes ? "min" : "s");
}

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
        if (us_as_s(now_us - point.time_us) <= options.window_s) {
          max = std::max(max, point.value);
        }
      }
    }
    max = nice_ceiling(std::max(max * 1.05, options.min_top));
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
    const double age_s = us_as_s(now_us - time_us);
    return right - pixels(age_s / options.window_s) * (right - left);
  };
  const auto y_of = [&](double value) {
    return lower - pixels(std::clamp(value / max, 0.0, 1.0)) * (lower - upper);
  };
  const bool many = lower - upper > 90 * scale;
  // A given top may be any number, so use halves and quarters.
  const int divisions = options.max > 0 ? (many ? 4 : 2) : nice_divisions(max, many);
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
    const float x = right - pixels(age / options.window_s) * (right - left);
    draw->AddLine({x, lower}, {x, lower + 3 * scale}, theme.line);
    const std::string text = axis_age_text(age);
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
  if (options.marks != nullptr)
    draw_marks(view, place, *options.marks, now_us, options.window_s, {left, upper},
               {right, lower});

  // Adjacent pieces of a filled area join without a seam only if their edges are sharp.
  const ImDrawListFlags flags = draw->Flags;
  draw->PushClipRect({left, upper - 2}, {right + 1, lower + 1}, true);
  const ImVec2 mouse = ImGui::GetIO().MousePos;
  const bool hovered = ImGui::IsItemHovered() && mouse.x >= left && mouse.x <= right;
  std::string tip;
  static thread_local std::vector<Column> columns;
  static thread_local std::vector<ImVec2> points;
  for (const Line& line : lines) {
    const Series& series = *line.series;
    columns_of(series, x_of, left, columns);
    const auto stroke = [&] {
      if (points.size() > 1) {
        draw->AddPolyline(points.data(), size32(points), line.colour, 0, 1.6f * scale);
      } else if (points.size() == 1) {
        draw->AddCircleFilled(points[0], 2 * scale, line.colour);
      }
      points.clear();
    };
    points.clear();
    const Column* closest = nullptr;
    for (const Column& column : columns) {
      if (column.begins) stroke();
      points.push_back({column.x, y_of(column.mean())});
      // If several values share a pixel, show their range.
      if (column.count > 1 && column.high > column.low) {
        draw->AddLine({column.x, y_of(column.high)}, {column.x, y_of(column.low)},
                      with_alpha(line.colour, 0.35f));
      }
      if (closest == nullptr || std::abs(column.x - mouse.x) < std::abs(closest->x - mouse.x)) {
        closest = &column;
      }
      if (line.filled && points.size() > 1) {
        const ImVec2 a = points[points.size() - 2], b = points.back();
        draw->Flags = flags & ~ImDrawListFlags_AntiAliasedFill;
        draw->AddQuadFilled(a, b, {b.x, lower}, {a.x, lower}, with_alpha(line.colour, 0.16f));
        draw->Flags = flags;
      }
    }
    stroke();
    if (hovered && closest != nullptr && std::abs(closest->x - mouse.x) < 8 * scale) {
      const double value = closest->mean();
      tip += fmt::format("{}{}: {}", tip.empty() ? "" : "\n", line.label,
                         options.as_percent ? percent_text(value) : with_unit(value, options.unit));
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
