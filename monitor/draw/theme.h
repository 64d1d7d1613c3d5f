#pragma once
// Colours, fonts and distances. The hues are those of Okabe and Ito ("Color Universal Design",
// 2008), which colour-blind people can distinguish; states also differ in lightness, so that a
// greyscale picture is readable.

#include <imgui.h>

#include <cstdint>
#include <string>

#include "ipc/schema/watch.h"

namespace hearth::monitor {

struct Theme {
  bool dark = true;
  ImU32 background, panel, raised, line, grid;
  ImU32 text, muted, faint;
  ImU32 accent, good, warn, bad;
  ImU32 decode, draft, prefill;  ///< in plots
  ImU32 block[ipc::kNumWatchedBlocks];
  ImU32 request[8];

  static Theme make(bool dark);
  /// The colour of a request, the same in every panel.
  ImU32 of_request(uint64_t number) const { return number == 0 ? muted : request[number % 8]; }
};

struct Fonts {
  ImFont* text = nullptr;   ///< 15 px at scale 1
  ImFont* small = nullptr;  ///< 12.5 px
  ImFont* big = nullptr;    ///< 26 px, digits of the headline
  ImFont* bold = nullptr;
};

/// Loads the fonts from the usual folders. If they are missing, uses the built-in font, which has
/// only Latin letters.
Fonts load_fonts(float scale);
void apply_style(const Theme& theme, float scale);

ImU32 with_alpha(ImU32 colour, float alpha);

}  // namespace hearth::monitor
