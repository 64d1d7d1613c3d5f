#pragma once
// How far a verb is, on stderr: one line that the next overwrites on a terminal, a line per stage
// elsewhere.

#include <string>
#include <string_view>

namespace hearth::worker {

class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  /// A new stage: "reading the model".
  void stage(std::string_view text);
  /// A detail of the stage, shown on a terminal only.
  void detail(std::string_view text);

 private:
  bool terminal_;
  std::string stage_;
};

}  // namespace hearth::worker
