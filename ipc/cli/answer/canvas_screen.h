#pragma once
// Draws a canvas on a terminal while it is filled: below the text that is whole already, and over
// what it drew before. Pure: makes the bytes to write.

#include <cstddef>
#include <string>
#include <string_view>

#include "ipc/schema/events.h"

namespace hearth::cli {

/// The drawing starts with the last line of the whole text, because a terminal can only go back to
/// the beginning of a line. Tokens of whole blocks are left out: they are in the text.
class CanvasScreen {
 public:
  explicit CanvasScreen(size_t columns) : columns_(columns) {}

  /// Of text that was written for good, and of the tokens that it stands for.
  void note(std::string_view text, size_t tokens);
  /// The bytes that show the canvas in place of the last drawing.
  std::string draw(const ipc::CanvasState& canvas);
  /// The bytes that remove the drawing; "": there is none.
  std::string clear();

 private:
  size_t columns_;
  size_t whole_ = 0;       ///< tokens that were written for good
  std::string last_line_;  ///< of the text that was written for good
  size_t rows_drawn_ = 0;
};

}  // namespace hearth::cli
