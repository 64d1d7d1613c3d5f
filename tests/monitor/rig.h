#pragma once
// A recording made by code, so that what a picture must show is known to the last number; and the
// app drawn without a display.

#include <memory>
#include <string>
#include <vector>

#include "ipc/client/event_stream.h"
#include "monitor/app.h"
#include "monitor/offscreen.h"

namespace hearth::monitor {

inline constexpr int64_t kBeginUs = 1'000'000'000;

/// A daemon with one model serving for `seconds`, told as the broker tells it: `running` requests,
/// a pool of `blocks`. The same for the same arguments.
std::vector<ipc::StreamMessage> made_recording(int seconds, int running, int32_t blocks);

/// One screen of 1280 x 800 for all tests of the process; null without EGL, and why.
Offscreen* screen(std::string* why);

/// The app with all of `messages`, ready to be drawn on `screen`.
struct Drawn {
  Drawn(Offscreen& offscreen, const std::vector<ipc::StreamMessage>& messages, bool dark = true);
  /// Draws this panel and keeps texts and picture.
  void show(Panel panel);
  /// The text at this place; empty where there is none.
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
