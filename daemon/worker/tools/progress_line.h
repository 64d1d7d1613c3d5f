#pragma once
// A verb's progress on stderr: on a terminal one line that is overwritten, otherwise a line per
// stage.

#include <cstdint>
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
  /// The detail "42 %".
  void percent(uint64_t done, uint64_t total);

 private:
  bool terminal_;
  std::string stage_;
};

}  // namespace hearth::worker
