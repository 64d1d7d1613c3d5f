#pragma once
// The live window: GLFW, the daemon's events, and a frame whenever something has changed.

#include <filesystem>
#include <vector>

#include "ipc/client/event_stream.h"
#include "kernels/base/result.h"
#include "monitor/window/app.h"

namespace hearth::monitor {

struct WindowOptions {
  std::filesystem::path runtime_dir;  ///< empty: the first in which a daemon answers
  Settings settings;
  double exit_after_s = 0;  ///< 0: until the user closes it
  /// Shown instead of the daemon's events, at the recorded speed; empty: show the daemon.
  std::vector<ipc::StreamMessage> recording;
};

/// Runs until the window is closed; returns the settings as the user left them.
Result<Settings> run_window(const WindowOptions& options);

}  // namespace hearth::monitor
