#pragma once
// Lines over time, with axes, grid, legend and the value under the mouse.

#include <span>
#include <string>

#include "monitor/series.h"
#include "monitor/view.h"

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
  bool as_percent = false;  ///< values are shares
  double ceiling = 0;       ///< drawn as a line; 0: none
  const char* ceiling_label = "";
};

/// Fills `size`, the legend included. `place` names its texts for tests.
void plot(View& view, const char* place, std::span<const Line> lines, int64_t now_us,
          const PlotOptions& options, ImVec2 size);

/// The next of 1, 2, 5, 10, 20, ... that is not below `value`.
double nice_ceiling(double value);

}  // namespace hearth::monitor
