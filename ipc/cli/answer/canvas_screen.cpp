#include "ipc/cli/answer/canvas_screen.h"

#include <fmt/core.h>

#include <algorithm>

#include "ipc/cli/terminal/terminal.h"

namespace hearth::cli {
namespace {

constexpr const char* kFaint = "\x1b[2m";
constexpr const char* kBright = "\x1b[0m";
constexpr const char* kMask = "\xE2\x96\x91";  // a shaded cell
/// Surer tokens are drawn in full brightness.
constexpr float kSure = 0.5f;
/// A terminal cannot go back to lines that have left it.
constexpr size_t kMostRows = 12;

/// Columns of a text without control characters; characters of double width count once.
size_t columns_of(std::string_view text) {
  return std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; });
}

}  // namespace

void CanvasScreen::note(std::string_view text, size_t tokens) {
  whole_ += tokens;
  const size_t line = text.rfind('\n');
  if (line != std::string_view::npos) {
    last_line_.clear();
    text.remove_prefix(line + 1);
  }
  last_line_ += text;
}

std::string CanvasScreen::draw(const ipc::CanvasState& canvas) {
  std::string out = clear();
  const size_t most = kMostRows * columns_;
  size_t column = columns_of(last_line_);
  if (column >= most) return out;  // nothing of it can be drawn again
  out += '\r' + last_line_;
  bool dim = false;
  for (size_t i = whole_; i < canvas.texts.size(); ++i) {
    const float confidence = i < canvas.confidence.size() ? canvas.confidence[i] : 0;
    const bool masked = canvas.texts[i].empty() && confidence == 0;
    std::string text = masked ? kMask : terminal_safe(canvas.texts[i]);
    std::ranges::replace(text, '\n', ' ');
    const size_t width = columns_of(text);
    if (column + width >= most) break;
    column += width;
    const bool unsure = confidence < kSure;
    if (unsure != dim) out += unsure ? kFaint : kBright;
    dim = unsure;
    out += text;
  }
  if (dim) out += kBright;
  rows_drawn_ = 1 + (column == 0 ? 0 : (column - 1) / columns_);
  return out;
}

std::string CanvasScreen::clear() {
  if (rows_drawn_ == 0) return "";
  std::string out;
  if (rows_drawn_ > 1) out = fmt::format("\x1b[{}A", rows_drawn_ - 1);
  out += "\r\x1b[J" + last_line_;
  rows_drawn_ = 0;
  return out;
}

}  // namespace hearth::cli
