#pragma once
// A recording made by code, so that the content of its picture is known exactly; and the app drawn
// without a display.

#include <memory>
#include <string>
#include <vector>

#include "ipc/client/event_stream.h"
#include "monitor/window/app.h"
#include "monitor/window/offscreen.h"

namespace hearth::monitor {

inline constexpr int64_t kBeginUs = 1'000'000'000;

/// A daemon with one model that serves for `seconds`, as the broker reports it: `running` requests,
/// a pool of `blocks`. Equal for equal arguments.
std::vector<ipc::StreamMessage> made_recording(int seconds, int running, int32_t blocks);

/// One screen of 1280 x 800 for all tests of the process; without EGL null and the reason.
Offscreen* screen(std::string* why);

/// The app with all of `messages`, ready to be drawn on `screen`.
struct Drawn {
  Drawn(Offscreen& offscreen, const std::vector<ipc::StreamMessage>& messages, bool dark = true);
  /// Draws this panel and stores texts and picture.
  void show(Panel panel);
  /// Draws one frame, as show() does without choosing a panel.
  void frame();
  /// The text at this place; empty if there is none.
  std::string text(const std::string& place) const;
  /// Whether something other than `background` was drawn where that text is.
  bool visible(const DrawnText& text) const;

  Offscreen& offscreen;
  std::unique_ptr<Textures> textures;
  App app;
  std::vector<DrawnText> texts;
  Picture picture;
};

}  // namespace hearth::monitor
