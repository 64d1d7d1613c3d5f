#pragma once
// The dashboard: takes messages, draws frames. It uses Dear ImGui but no window; the owner of the
// window or picture calls `frame` between its own begin and end. One thread.

#include <filesystem>
#include <vector>

#include "monitor/draw/view.h"
#include "monitor/snapshot/snapshot.h"

namespace hearth::monitor {

class App {
 public:
  App(bool dark, float scale);

  void apply(const ipc::StreamMessage& message) { snapshot_.apply(message); }
  void set_now(int64_t now_us) { snapshot_.set_now(now_us); }
  /// The result of a command passed to View::ask.
  void answer(const Answer& answer);

  /// Call between ImGui::NewFrame and ImGui::Render.
  void frame();
  /// True if something drawn has changed since the last frame. Ages are updated once a second;
  /// while no request is live, everything is redrawn every two seconds.
  bool wants_frame() const;
  bool quit() const { return quit_; }

  const Snapshot& snapshot() const { return snapshot_; }
  View& view() { return view_; }
  void set_dark(bool dark);

 private:
  void keys();
  void sidebar(float width);
  void confirmation();
  void help();

  Snapshot snapshot_;
  View view_;
  bool quit_ = false;
  uint64_t drawn_revision_ = 0;
  int64_t drawn_us_ = 0;
};

/// Settings saved between runs: theme, panel, time window, ceilings.
struct Settings {
  bool dark = true;
  Panel panel = Panel::kNow;
  double batch_window_s = 10;
  Ceilings ceilings;
  int width = 1280, height = 800;
};
/// Parses lines "name value"; unknown or out-of-range entries keep their defaults. Never fails.
Settings parse_settings(const std::string& text);
std::string settings_text(const Settings& settings);
/// $XDG_CONFIG_HOME/hearth/monitor.conf, or the same below ~/.config; empty if neither is known.
std::filesystem::path settings_file();

}  // namespace hearth::monitor
