#include "monitor/window/app.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <sstream>
#include <utility>

#include "ipc/text/shown_text.h"
#include "kernels/base/numbers.h"
#include "monitor/panels/panels.h"

namespace hearth::monitor {
namespace {

using Draw = void (*)(const Snapshot&, View&);
constexpr Draw kDraw[kNumPanels] = {draw_now,         draw_batches,  draw_blocks,
                                    draw_requests,    draw_models,   draw_cache,
                                    draw_speculation, draw_roofline, draw_log};
constexpr int64_t kAgesEveryUs = 1'000'000;
constexpr int64_t kIdleEveryUs = 2'000'000;  // a frame drawn by software takes 30 ms of a core
constexpr int64_t kNoticeUs = 8'000'000;
constexpr size_t kNoticeChars = 300;

constexpr const char* kKeys[][2] = {
    {"1 to 9", "panels"},
    {"t", "dark or light"},
    {"m", "the next model"},
    {"c", "blocks by state or by request"},
    {"space", "batches: pause and continue"},
    {"+ -", "batches: zoom; the wheel too"},
    {"left, right", "batches: back and forth; dragging too"},
    {"up, down", "requests: choose one"},
    {"Del", "requests: cancel it, after a question"},
    {"Enter, Esc", "yes and no, where something is asked"},
    {"q", "quit"},
};

bool pressed(ImGuiKey key) { return ImGui::IsKeyPressed(ImGui::GetKeyIndex(key)); }

}  // namespace

App::App(bool dark, float scale) {
  view_.scale = scale;
  view_.fonts = load_fonts(scale);
  set_dark(dark);
}

void App::set_dark(bool dark) {
  view_.theme = Theme::make(dark);
  apply_style(view_.theme, view_.scale);
}

bool App::wants_frame() const {
  const int64_t since_us = snapshot_.now_us() - drawn_us_;
  // Counters also arrive several times a second when nothing runs; they need no frequent redraw.
  if (snapshot_.connected() && snapshot_.stats().requests_live == 0)
    return since_us >= kIdleEveryUs;
  return snapshot_.revision() != drawn_revision_ || since_us >= kAgesEveryUs;
}

void App::answer(const Answer& answer) {
  drawn_us_ = 0;  // show it at once, even when idle
  using Kind = Command::Kind;
  const Kind kind = answer.command.kind;
  const auto failed = [&](const std::string& why) {
    const std::string text = fmt::format("{}: {}", in_words(answer.command), why);
    view_.notice = ipc::one_line(text, kNoticeChars);
    view_.notice_ok = false;
    view_.notice_us = snapshot_.now_us();
    snapshot_.note(2, view_.notice);
  };
  if (kind == Kind::kPlan) view_.planning.clear();
  if (kind == Kind::kListCache) {
    Result<std::vector<StoredPrefix>> list = std::vector<StoredPrefix>{};
    if (answer.ok) list = parse_cache_list(answer.text);
    view_.stored_us = snapshot_.now_us();
    view_.stored_problem = ipc::one_line(!answer.ok  ? answer.text
                                         : list.ok() ? ""
                                                     : list.error().message,
                                         kNoticeChars);
    view_.stored = list.ok() ? std::move(list).value() : std::vector<StoredPrefix>{};
    return snapshot_.touch();
  }
  if (!answer.ok) return failed(answer.text);
  if (kind == Kind::kPlan) {
    Result<PlanReport> plan = parse_plan(answer.text);
    if (!plan.ok()) return failed(plan.error().message);
    if (plan->read_bytes_per_s > 0 && plan->ops_per_s > 0) {
      view_.ceilings = {plan->read_bytes_per_s / 1e9, plan->ops_per_s / 1e9};
    }
    view_.plan = std::move(plan).value();
    return snapshot_.touch();
  }
  view_.notice = ipc::one_line(answer.text, kNoticeChars);
  view_.notice_ok = true;
  view_.notice_us = snapshot_.now_us();
  snapshot_.note(0, view_.notice);
  view_.stored_asked_us = 0;  // the contents on disk may have changed
}

void App::keys() {
  ImGuiIO& io = ImGui::GetIO();
  if (io.WantTextInput) return;
  for (const ImWchar c : io.InputQueueCharacters) {
    if (c >= '1' && c < '1' + kNumPanels) view_.panel = panel_at(c - '1');
    if (c == 't') set_dark(!view_.theme.dark);
    if (c == 'c') view_.blocks_by_request = !view_.blocks_by_request;
    if (c == 'q') quit_ = true;
    if (c == '?') view_.help = true;
    if (c == 'm' && !snapshot_.model_views().empty()) {
      const auto& views = snapshot_.model_views();
      const ModelView* now = view_.shown_model(snapshot_);
      auto next = std::next(views.find(now->name));
      view_.model = (next == views.end() ? views.begin() : next)->first;
    }
    if (c == ' ' && view_.panel == Panel::kBatches) {
      view_.paused = !view_.paused;
      view_.paused_at_us = snapshot_.now_us();
      view_.scrolled_us = 0;
    }
    if (c == '+') view_.batch_window_s = std::max(0.05, view_.batch_window_s / 2);
    if (c == '-') view_.batch_window_s = std::min(600.0, view_.batch_window_s * 2);
  }
  if (view_.panel == Panel::kBatches) {
    const auto by = static_cast<int64_t>(view_.batch_window_s * 1e6 / 4);
    const bool back = pressed(ImGuiKey_LeftArrow), forth = pressed(ImGuiKey_RightArrow);
    if ((back || forth) && !view_.paused) {
      view_.paused = true;
      view_.paused_at_us = snapshot_.now_us();
    }
    if (back) view_.scrolled_us += by;
    if (forth) view_.scrolled_us = std::max<int64_t>(0, view_.scrolled_us - by);
  }
}

void App::sidebar(float width) {
  const Theme& theme = view_.theme;
  const float scale = view_.scale;
  ImGui::PushStyleColor(ImGuiCol_ChildBg, theme.panel);
  ImGui::BeginChild("sidebar", {width, 0}, true, ImGuiWindowFlags_AlwaysUseWindowPadding);
  ImGui::PopStyleColor();
  ImGui::PushFont(view_.fonts.bold);
  put_text(view_, "side/title", "hearth", theme.text);
  ImGui::PopFont();
  const bool on = snapshot_.connected();
  ImGui::PushFont(view_.fonts.small);
  legend(view_, on ? theme.good : theme.bad, "");
  ImGui::SameLine(0, 6 * scale);
  put_text(view_, "side/state",
           on                                 ? "daemon answers"
           : snapshot_.last_message_us() == 0 ? "no daemon yet"
                                              : "daemon lost",
           on ? theme.muted : theme.bad);
  if (snapshot_.last_message_us() != 0) {
    put_text(view_, "side/age",
             "heard " + age_text(snapshot_.now_us(), snapshot_.last_message_us()), theme.faint);
  }
  ImGui::PopFont();
  ImGui::Dummy({0, 8 * scale});
  ImGui::PushStyleVar(ImGuiStyleVar_ItemSpacing, {0, 2 * scale});
  for (int i = 0; i < kNumPanels; ++i) {
    const auto panel = panel_at(i);
    const bool chosen = view_.panel == panel;
    const ImVec2 at = ImGui::GetCursorScreenPos();
    const float height = 30 * scale;
    ImGui::PushID(i);
    if (ImGui::InvisibleButton("panel", {ImGui::GetContentRegionAvail().x, height})) {
      view_.panel = panel;
    }
    const bool hovered = ImGui::IsItemHovered();
    ImGui::PopID();
    ImDrawList* draw = ImGui::GetWindowDrawList();
    const ImVec2 end{at.x + ImGui::GetContentRegionAvail().x, at.y + height};
    if (chosen || hovered) {
      draw->AddRectFilled(at, end, with_alpha(theme.accent, chosen ? 0.18f : 0.08f), 5 * scale);
    }
    if (chosen) draw->AddRectFilled(at, {at.x + 3 * scale, end.y}, theme.accent, 2 * scale);
    const float text_y = at.y + (height - ImGui::GetTextLineHeight()) / 2;
    const std::string title(panel_title(panel));
    draw->AddText({at.x + 12 * scale, text_y}, chosen ? theme.text : theme.muted, title.c_str());
    const std::string key = fmt::format("{}", i + 1);
    draw->AddText(view_.fonts.small, view_.fonts.small->FontSize,
                  {end.x - 14 * scale, text_y + scale}, theme.faint, key.c_str());
    if (view_.drawn != nullptr) {
      view_.drawn->push_back({fmt::format("side/{}", panel_name(panel)), title, at, end});
    }
  }
  ImGui::PopStyleVar();
  const float foot = 96 * scale;
  const float left = ImGui::GetContentRegionAvail().y - foot;
  if (left > 0) ImGui::Dummy({0, left});
  ImGui::PushFont(view_.fonts.small);
  const ipc::StatsReply& stats = snapshot_.stats();
  if (!stats.version.empty()) {
    put_text(view_, "side/version", fmt::format("hearthd {}", stats.version), theme.faint);
    put_text(view_, "side/uptime",
             fmt::format("up {}", ipc::human_duration(std::max<int64_t>(0, stats.uptime_ms))),
             theme.faint);
    put_text(view_, "side/done", fmt::format("{} requests done", stats.requests_done), theme.faint);
  }
  put_text(view_, "side/keys", "? keys   t theme   q quit", theme.faint);
  ImGui::PopFont();
  ImGui::EndChild();
}

void App::confirmation() {
  constexpr const char* kTitle = "Are you sure?";
  if (view_.confirm && !ImGui::IsPopupOpen(kTitle)) ImGui::OpenPopup(kTitle);
  const ImVec2 middle{ImGui::GetIO().DisplaySize.x / 2, ImGui::GetIO().DisplaySize.y / 2};
  ImGui::SetNextWindowPos(middle, ImGuiCond_Always, {0.5f, 0.5f});
  if (!ImGui::BeginPopupModal(kTitle, nullptr, ImGuiWindowFlags_AlwaysAutoResize)) return;
  using Kind = Command::Kind;
  const auto consequence = [](Kind kind) {
    switch (kind) {
      case Kind::kCancel: return "It ends now; what it has written so far stays with its client.";
      case Kind::kUnload: return "It leaves memory once its requests have ended.";
      case Kind::kSwap: return "New requests go there once it is loaded; no request is cut off.";
      case Kind::kRemovePrefix: return "It and all that continues it go from the disk.";
      default: return "";
    }
  };
  if (!view_.confirm) {
    ImGui::CloseCurrentPopup();
    return ImGui::EndPopup();
  }
  const Command command = *view_.confirm;
  put_text(view_, "confirm/what", ipc::one_line(in_words(command), kNoticeChars));
  put_text(view_, "confirm/consequence", consequence(command.kind), view_.theme.muted);
  ImGui::Dummy({0, 6 * view_.scale});
  const bool yes = small_button(view_, "confirm/yes", "Do it (Enter)") || pressed(ImGuiKey_Enter);
  ImGui::SameLine(0, 12 * view_.scale);
  const bool no = small_button(view_, "confirm/no", "Leave it (Esc)") || pressed(ImGuiKey_Escape);
  if (yes && view_.ask) view_.ask(command);
  if (yes || no) {
    view_.confirm.reset();
    ImGui::CloseCurrentPopup();
  }
  ImGui::EndPopup();
}

void App::help() {
  constexpr const char* kTitle = "Keys";
  if (std::exchange(view_.help, false)) ImGui::OpenPopup(kTitle);
  if (!ImGui::BeginPopup(kTitle)) return;
  for (const auto& [key, meaning] : kKeys) {
    put_text(view_, fmt::format("help/{}", key), key, view_.theme.accent);
    ImGui::SameLine(110 * view_.scale);
    put_text(view_, "", meaning, view_.theme.text);
  }
  if (pressed(ImGuiKey_Escape)) ImGui::CloseCurrentPopup();
  ImGui::EndPopup();
}

void App::frame() {
  keys();
  drawn_revision_ = snapshot_.revision();
  drawn_us_ = snapshot_.now_us();
  if (view_.drawn != nullptr) view_.drawn->clear();
  const ImGuiIO& io = ImGui::GetIO();
  ImGui::SetNextWindowPos({0, 0});
  ImGui::SetNextWindowSize(io.DisplaySize);
  ImGui::PushFont(view_.fonts.text);
  ImGui::Begin("hearth", nullptr,
               ImGuiWindowFlags_NoDecoration | ImGuiWindowFlags_NoMove |
                   ImGuiWindowFlags_NoSavedSettings | ImGuiWindowFlags_NoBringToFrontOnFocus);
  sidebar(158 * view_.scale);
  ImGui::SameLine();
  ImGui::PushStyleColor(ImGuiCol_ChildBg, view_.theme.background);
  ImGui::BeginChild("panel", {0, 0});
  ImGui::PopStyleColor();
  ImGui::PushStyleColor(ImGuiCol_ChildBg, view_.theme.panel);
  if (!snapshot_.connected()) {
    put_text(view_, "lost",
             snapshot_.last_message_us() == 0
                 ? "Waiting for a daemon. It starts by itself with: hearth run MODEL"
                 : "The daemon is lost. The last state is shown; updates continue when it returns.",
             view_.theme.bad);
  }
  if (view_.notice_us != 0 && snapshot_.now_us() - view_.notice_us < kNoticeUs) {
    put_text(view_, "notice", view_.notice, view_.notice_ok ? view_.theme.good : view_.theme.bad);
  }
  kDraw[to_underlying(view_.panel)](snapshot_, view_);
  confirmation();
  help();
  ImGui::PopStyleColor();
  ImGui::EndChild();
  ImGui::End();
  ImGui::PopFont();
}

// ---- Settings ----------------------------------------------------------------------------------

Settings parse_settings(const std::string& text) {
  Settings out;
  std::istringstream lines(text.substr(0, 4096));
  std::string name, value;
  const auto number = [&value](double low, double high, double& target) {
    char* end = nullptr;
    const double met = std::strtod(value.c_str(), &end);
    if (end != value.c_str() && *end == '\0' && met >= low && met <= high) target = met;
  };
  while (lines >> name >> value) {
    if (name == "theme") out.dark = value != "light";
    if (name == "panel") {
      for (int i = 0; i < kNumPanels; ++i) {
        if (panel_name(panel_at(i)) == value) out.panel = panel_at(i);
      }
    }
    if (name == "window_s") number(0.05, 600, out.batch_window_s);
    if (name == "read_gb_per_s") number(0, 1e6, out.ceilings.read_gb_per_s);
    if (name == "gop_per_s") number(0, 1e9, out.ceilings.gop_per_s);
    double side = 0;
    if (name == "width") {
      number(640, 16384, side);
      if (side > 0) out.width = static_cast<int>(side);
    }
    if (name == "height") {
      number(400, 16384, side);
      if (side > 0) out.height = static_cast<int>(side);
    }
  }
  return out;
}

std::string settings_text(const Settings& settings) {
  return fmt::format(
      "theme {}\npanel {}\nwindow_s {}\nread_gb_per_s {}\ngop_per_s {}\nwidth {}\nheight {}\n",
      settings.dark ? "dark" : "light", panel_name(settings.panel), settings.batch_window_s,
      settings.ceilings.read_gb_per_s, settings.ceilings.gop_per_s, settings.width,
      settings.height);
}

std::filesystem::path settings_file() {
  const char* xdg = std::getenv("XDG_CONFIG_HOME");
  if (xdg != nullptr && *xdg == '/') return std::filesystem::path(xdg) / "hearth/monitor.conf";
  const char* home = std::getenv("HOME");
  if (home != nullptr && *home == '/') {
    return std::filesystem::path(home) / ".config/hearth/monitor.conf";
  }
  return {};
}

}  // namespace hearth::monitor
