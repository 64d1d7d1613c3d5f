#pragma once
// Line plots over time, with axes, grid, legend and the value under the mouse.

#include <deque>
#include <span>
#include <string>

#include "monitor/draw/view.h"
#include "monitor/snapshot/series.h"

namespace hearth::monitor {

struct Line {
  const char* label;
  const Series* series;
  ImU32 colour;
  bool filled = false;
};

struct PlotOptions {
  const char* unit = "";
  double window_s = 120;
  double max = 0;           ///< 0: from the values
  double min_top = 0;       ///< the axis reaches at least this value
  bool as_percent = false;  ///< values are shares
  const std::deque<Mark>* marks = nullptr;
};

/// Fills `size`, legend included. `place` identifies its texts in tests.
void plot(View& view, const char* place, std::span<const Line> lines, int64_t now_us,
          const PlotOptions& options, ImVec2 size);

/// The next of 1, 1.5, 2, 3, 5, 7.5, 10, 15, ... that is not below `value`.
double nice_ceiling(double value);
/// Number of parts of an axis up to `top`, chosen so that ticks are round: 2 to 5 if there is room
/// for `many`, else 2 or 3.
int nice_divisions(double top, bool many);
/// Age as an axis label: "now", "−30 s", "−1.5 min".
std::string axis_age_text(double age_s);

}  // namespace hearth::monitor
