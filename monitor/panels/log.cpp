#include <fmt/core.h>

#include <algorithm>
#include <cctype>

#include "kernels/base/chars.h"
#include "monitor/panels/panels.h"

namespace hearth::monitor {
namespace {

bool holds(const std::string& text, const char* part) {
  const std::string want = part;
  const auto same = [](char a, char b) {
    return std::tolower(byte_of(a)) == std::tolower(byte_of(b));
  };
  return std::search(text.begin(), text.end(), want.begin(), want.end(), same) != text.end();
}

}  // namespace

void draw_log(const Snapshot& snapshot, View& view) {
  if (begin_card(view, "Log", {0, 0}, "what changed while this window was open, latest first")) {
    ImGui::SetNextItemWidth(260 * view.scale);
    ImGui::InputTextWithHint("##filter", "filter", view.log_filter, sizeof view.log_filter);
    ImGui::SameLine();
    ImGui::RadioButton("all", &view.log_level, 0);
    ImGui::SameLine();
    ImGui::RadioButton("warnings", &view.log_level, 1);
    ImGui::SameLine();
    ImGui::RadioButton("errors", &view.log_level, 2);
    ImGui::BeginChild("lines");
    int shown = 0;
    const ImU32 colours[] = {view.theme.text, view.theme.warn, view.theme.bad};
    for (auto line = snapshot.log().rbegin(); line != snapshot.log().rend(); ++line) {
      if (line->level < view.log_level || !holds(line->text, view.log_filter)) continue;
      if (++shown > 500) break;
      put_small(view, fmt::format("log/{}/when", shown), age_text(snapshot.now_us(), line->time_us),
                view.theme.faint);
      ImGui::SameLine(110 * view.scale);
      put_text(view, fmt::format("log/{}", shown), line->text, colours[line->level]);
    }
    if (shown == 0) put_text(view, "log/none", "nothing to show", view.theme.muted);
    ImGui::EndChild();
  }
  end_card();
}

}  // namespace hearth::monitor
