#pragma once
// The dashboard: messages in, frames out. Knows Dear ImGui and no window; who owns the window or
// the picture calls `frame` between its own begin and end. One thread.

#include <filesystem>
#include <vector>

#include "monitor/snapshot.h"
#include "monitor/view.h"

namespace hearth::monitor {

class App {
 public:
  App(bool dark, float scale);

  void apply(const ipc::StreamMessage& message) { snapshot_.apply(message); }
  void set_now(int64_t now_us) { snapshot_.set_now(now_us); }
  /// What came of a command that View::ask was given.
  void answer(const Answer& answer);

  /// Between ImGui::NewFrame and ImGui::Render.
  void frame();
  /// True when something that is drawn has changed since the last frame; ages count once a second,
  /// and all is drawn every two seconds where no request is live.
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

/// What is remembered from one time to the next: theme, panel, window of time, ceilings.
struct Settings {
  bool dark = true;
  Panel panel = Panel::kNow;
  double batch_window_s = 10;
  Ceilings ceilings;
  int width = 1280, height = 800;
};
/// Lines "name value"; what is unknown or out of range is left as it was. Never fails.
Settings parse_settings(const std::string& text);
std::string settings_text(const Settings& settings);
/// $XDG_CONFIG_HOME/hearth/monitor.conf, or below ~/.config; empty where neither is known.
std::filesystem::path settings_file();

}  // namespace hearth::monitor
