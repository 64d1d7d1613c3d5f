#pragma once
// Reads lines: from a terminal with editing and a history on disk (libedit), from anything else
// unchanged. Only line_editor.cpp uses the library.

#include <filesystem>
#include <memory>
#include <string>

namespace hearth::cli {

class LineEditor {
 public:
  /// `history`: the history file, created with mode 0600. Empty: no history.
  explicit LineEditor(std::filesystem::path history);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  enum class Outcome {
    kLine,
    kInterrupted,  ///< Ctrl-C
    kEnd,          ///< Ctrl-D on an empty line, or the end of the input
  };
  /// Reads the next line, without its newline. `prompt` is shown on a terminal only.
  Outcome read(const std::string& prompt, std::string* line);
  /// Adds a line to the history.
  void remember(const std::string& text);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hearth::cli
