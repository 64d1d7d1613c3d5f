#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "kernels/base/numbers.h"
#include "monitor/draw/pixels.h"
#include "monitor/draw/plot.h"
#include "monitor/panels/panels.h"

namespace hearth::monitor {
namespace {

int64_t prefill_of(const ipc::WatchedStep& step) {
  int64_t tokens = step.prefills_unlisted;
  for (const ipc::WatchedChunk& chunk : step.prefills) tokens += chunk.tokens;
  return tokens;
}

std::string name_of(const Snapshot& snapshot, uint64_t number) {
  if (number == 0) return "another user";
  const ipc::WatchedRequest* row = snapshot.find(number);
  return row != nullptr ? row->id : fmt::format("request {}", number);
}

void show_step(const Snapshot& snapshot, const ipc::WatchedStep& step) {
  std::string text = fmt::format("step {}: {}\n{}", step.step, ms_text(us_as_ms(step.duration_us)),
                                 step_in_words(step));
  for (size_t i = 0; i < step.prefills.size() && i < 8; ++i) {
    text += fmt::format("\n  {} tokens of {}", step.prefills[i].tokens,
                        name_of(snapshot, step.prefills[i].request));
  }
  text += fmt::format("\n{} running, {} waiting after it", step.running, step.waiting);
  ImGui::SetTooltip("%s", text.c_str());
}

struct Area {
  ImVec2 min, max;
  int64_t begin_us, end_us;
  double rows;  ///< at the top edge
  float x(int64_t time_us) const {
    const double share =
        as_double(time_us - begin_us) / as_double(std::max<int64_t>(1, end_us - begin_us));
    return min.x + pixels(share) * (max.x - min.x);
  }
  float height(double count) const { return pixels(std::min(1.0, count / rows)) * (max.y - min.y); }
};

void draw_step(const View& view, const Area& area, const ipc::WatchedStep& step, float left,
               float right) {
  ImDrawList* draw = ImGui::GetWindowDrawList();
  float y = area.max.y;
  const auto add = [&](double rows, ImU32 colour) {
    if (rows <= 0) return;
    const float up = std::max(1.0f, area.height(rows));
    const float top = std::max(area.min.y, y - up);
    draw->AddRectFilled({left, top}, {right, y}, colour);
    y = top;
  };
  add(step.decode_rows, view.theme.decode);
  add(step.draft_rows, view.theme.draft);
  for (const ipc::WatchedChunk& chunk : step.prefills) {
    add(chunk.tokens, view.theme.of_request(chunk.request));
  }
  add(step.prefills_unlisted, view.theme.muted);
}

void draw_column(const View& view, const Area& area, const StepColumn& column) {
  ImDrawList* draw = ImGui::GetWindowDrawList();
  const float left = area.x(column.begin_us);
  const float right = std::max(left + 1, area.x(column.begin_us + kColumnUs));
  float y = area.max.y;
  const double steps = std::max(1, column.steps);
  const auto add = [&](int64_t rows, ImU32 colour) {
    if (rows <= 0) return;
    const float top =
        std::max(area.min.y, y - std::max(1.0f, area.height(as_double(rows) / steps)));
    draw->AddRectFilled({left, top}, {right, y}, colour);
    y = top;
  };
  add(column.decode_rows, view.theme.decode);
  add(column.draft_rows, view.theme.draft);
  add(column.prefill_tokens, view.theme.prefill);
}

/// The first step that ends after `time_us`.
std::deque<ipc::WatchedStep>::const_iterator first_after(const ModelView& model, int64_t time_us) {
  return std::ranges::lower_bound(model.steps, time_us, {}, &ipc::WatchedStep::end_us);
}

void controls(const Snapshot& snapshot, View& view) {
  if (ImGui::Button(view.paused ? "Go on (space)" : "Pause (space)")) {
    view.paused = !view.paused;
    view.paused_at_us = snapshot.now_us();
    if (!view.paused) view.scrolled_us = 0;
  }
  ImGui::SameLine();
  for (const double window : {1.0, 10.0, 60.0, 600.0}) {
    const bool chosen = view.batch_window_s == window;
    if (chosen) ImGui::PushStyleColor(ImGuiCol_Button, with_alpha(view.theme.accent, 0.35f));
    const std::string label =
        window >= 60 ? fmt::format("{:.0f} min", window / 60) : fmt::format("{:.0f} s", window);
    if (ImGui::Button(label.c_str())) view.batch_window_s = window;
    if (chosen) ImGui::PopStyleColor();
    ImGui::SameLine(0, 4 * view.scale);
  }
  ImGui::SameLine(0, 12 * view.scale);
  put_small(view, "batches/hint", "wheel: zoom · drag or arrows: back up to 10 minutes",
            view.theme.faint);
}

void input(const Snapshot& snapshot, View& view, const ImVec2& min, const ImVec2& max) {
  const ImGuiIO& io = ImGui::GetIO();
  if (!ImGui::IsMouseHoveringRect(min, max)) return;
  if (io.MouseWheel != 0) {
    view.batch_window_s =
        std::clamp(view.batch_window_s * std::pow(0.8, io.MouseWheel), 0.05, 600.0);
  }
  if (ImGui::IsMouseDragging(ImGuiMouseButton_Left)) {
    if (!view.paused) {
      view.paused = true;
      view.paused_at_us = snapshot.now_us();
    }
    const double us_per_pixel = view.batch_window_s * 1e6 / (max.x - min.x);
    view.scrolled_us += static_cast<int64_t>(io.MouseDelta.x * us_per_pixel);
  }
}

void timeline(const Snapshot& snapshot, View& view, const ModelView& model) {
  const Theme& theme = view.theme;
  const float scale = view.scale;
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const ImVec2 room = ImGui::GetContentRegionAvail();
  ImGui::InvisibleButton("timeline", room);
  Area area{{at.x + 46 * scale, at.y + 4 * scale},
            {at.x + room.x - 6 * scale, at.y + room.y - 18 * scale},
            0,
            0,
            1};
  input(snapshot, view, area.min, area.max);
  view.scrolled_us = std::clamp<int64_t>(view.scrolled_us, 0, kHistoryUs);
  const int64_t right_us = view.paused ? view.paused_at_us - view.scrolled_us : snapshot.now_us();
  area.end_us = right_us;
  area.begin_us = right_us - static_cast<int64_t>(view.batch_window_s * 1e6);

  const auto first = first_after(model, area.begin_us);
  const auto last =
      std::ranges::upper_bound(model.steps, area.end_us + 1'000'000, {}, &ipc::WatchedStep::end_us);
  const bool raw = !model.steps.empty() && last - first < 6000 &&
                   (model.steps.front().end_us <= area.begin_us || model.columns.empty() ||
                    model.columns.front().begin_us >= model.steps.front().end_us - kColumnUs);
  double rows = 8;
  if (raw) {
    for (auto step = first; step != last; ++step) {
      rows = std::max(rows, as_double(step->decode_rows) + as_double(step->draft_rows) +
                                as_double(prefill_of(*step)));
    }
  } else {
    for (const StepColumn& column : model.columns) {
      if (column.begin_us < area.begin_us || column.begin_us > area.end_us) continue;
      rows =
          std::max(rows, as_double(column.decode_rows + column.draft_rows + column.prefill_tokens) /
                             column.steps);
    }
  }
  area.rows = nice_ceiling(rows);

  ImDrawList* draw = ImGui::GetWindowDrawList();
  ImGui::PushFont(view.fonts.small);
  const int divisions = nice_divisions(area.rows, true);
  for (int i = 0; i <= divisions; ++i) {
    const float share = pixels(i) / pixels(divisions);
    const float y = area.max.y - (area.max.y - area.min.y) * share;
    draw->AddLine({area.min.x, y}, {area.max.x, y}, i == 0 ? theme.line : theme.grid);
    const std::string text = with_unit(area.rows * i / divisions, "");
    const ImVec2 extent = ImGui::CalcTextSize(text.c_str());
    draw->AddText({area.min.x - extent.x - 6 * scale, y - extent.y / 2}, theme.faint, text.c_str());
    if (view.drawn != nullptr) {
      view.drawn->push_back({fmt::format("batches/axis/y{}", i),
                             text,
                             {area.min.x - extent.x, y},
                             {area.min.x, y + extent.y}});
    }
  }
  for (int i = 0; i <= 5; ++i) {
    const double age_s =
        us_as_s(snapshot.now_us() - area.end_us) + view.batch_window_s * (5 - i) / 5;
    const std::string text = axis_age_text(age_s);
    const float x = area.min.x + (area.max.x - area.min.x) * pixels(i) / 5;
    const ImVec2 extent = ImGui::CalcTextSize(text.c_str());
    const float left = std::min(x - extent.x / 2, area.max.x - extent.x);
    draw->AddText({left, area.max.y + 3 * scale}, theme.faint, text.c_str());
    if (view.drawn != nullptr) {
      view.drawn->push_back({fmt::format("batches/axis/x{}", i),
                             text,
                             {left, area.max.y},
                             {left + extent.x, area.max.y + extent.y}});
    }
  }
  draw->PushClipRect(area.min, {area.max.x + 1, area.max.y + 1}, true);
  const ImVec2 mouse = ImGui::GetIO().MousePos;
  const ipc::WatchedStep* under_mouse = nullptr;
  float before = area.min.x - 1;
  if (raw) {
    for (auto step = first; step != last; ++step) {
      const float right = area.x(step->end_us);
      float left = area.x(step->end_us - step->duration_us);
      if (right - left > 5) left += 1;  // leave a gap between steps if there is room
      // Otherwise consecutive steps touch: a seam between them would look like idle time.
      if (left > before && left - before < 0.7f) left = before;
      if (mouse.x >= left && mouse.x <= right && mouse.y >= area.min.y && mouse.y <= area.max.y) {
        under_mouse = &*step;
      }
      // If many steps share a pixel, only the first is drawn; the axis has no room for more.
      if (right - before < 0.7f) continue;
      before = right;
      draw_step(view, area, *step, left, std::max(right, left + 1));
    }
  } else {
    for (const StepColumn& column : model.columns) {
      if (column.begin_us + kColumnUs < area.begin_us || column.begin_us > area.end_us) continue;
      draw_column(view, area, column);
    }
  }
  if (under_mouse != nullptr) {
    draw->AddLine({mouse.x, area.min.y}, {mouse.x, area.max.y}, theme.faint);
    show_step(snapshot, *under_mouse);
  }
  draw->PopClipRect();
  ImGui::PopFont();
}

void in_words(const Snapshot& snapshot, View& view, const ModelView& model) {
  const int64_t until = view.paused ? view.paused_at_us - view.scrolled_us : snapshot.now_us();
  auto end = std::ranges::upper_bound(model.steps, until, {}, &ipc::WatchedStep::end_us);
  int lines = 0;
  while (end != model.steps.begin() && ++lines <= 8) {
    --end;
    put_small(view, fmt::format("batches/words/{}/when", lines),
              axis_age_text(us_as_s(snapshot.now_us() - end->end_us)), view.theme.faint);
    ImGui::SameLine(90 * view.scale);
    put_small(view, fmt::format("batches/words/{}/took", lines),
              ms_text(us_as_ms(end->duration_us)), view.theme.accent);
    ImGui::SameLine(170 * view.scale);
    put_small(view, fmt::format("batches/words/{}", lines), step_in_words(*end), view.theme.text);
  }
  if (lines == 0) put_small(view, "batches/words/none", "no step yet", view.theme.muted);
}

}  // namespace

void draw_batches(const Snapshot& snapshot, View& view) {
  choose_model(view, snapshot);
  const ModelView* model = view.shown_model(snapshot);
  if (model == nullptr) return nothing_yet(view, "no model in memory");
  const float words = 208 * view.scale;
  if (begin_card(view, "Steps", {0, ImGui::GetContentRegionAvail().y - words - 8 * view.scale},
                 "rows of each step (left axis) over time; as wide as it lasted")) {
    controls(snapshot, view);
    legend(view, view.theme.decode, "decode rows");
    ImGui::SameLine(0, 16 * view.scale);
    legend(view, view.theme.draft, "draft rows");
    ImGui::SameLine(0, 16 * view.scale);
    legend(view, view.theme.prefill, "prefill tokens, coloured by request");
    if (model->steps_lost > 0) {
      ImGui::SameLine(0, 16 * view.scale);
      put_small(view, "batches/lost", fmt::format("{} steps were not kept", model->steps_lost),
                view.theme.warn);
    }
    timeline(snapshot, view, *model);
  }
  end_card();
  if (begin_card(view, "What the scheduler decided", {0, 0},
                 "latest first: when, how long, what")) {
    in_words(snapshot, view, *model);
  }
  end_card();
}

}  // namespace hearth::monitor
