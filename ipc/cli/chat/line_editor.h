#pragma once
// Lines from a terminal, with editing and a history on disk (libedit); from anything else, as they
// are. Only line_editor.cpp knows the library.

#include <filesystem>
#include <memory>
#include <string>

namespace hearth::cli {

class LineEditor {
 public:
  /// `history`: the file; made with mode 0600. Empty: none is kept.
  explicit LineEditor(std::filesystem::path history);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  enum class Outcome {
    kLine,
    kInterrupted,  ///< Ctrl-C
    kEnd,          ///< Ctrl-D on an empty line, or the end of the input
  };
  /// The next line, without its end. `prompt` is shown on a terminal alone.
  Outcome read(const std::string& prompt, std::string* line);
  /// For the arrow keys, now and next time.
  void remember(const std::string& text);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hearth::cli
