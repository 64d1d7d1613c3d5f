#pragma once
// Prints the answers of a generation to a terminal or a pipe, until its end.

#include <string>
#include <string_view>
#include <vector>

#include "ipc/cli/answer/canvas_screen.h"
#include "ipc/cli/terminal/terminal.h"
#include "ipc/client/client.h"

namespace hearth::cli {

/// How a generation is shown.
struct StreamOptions {
  bool json = false;           ///< one JSON line per event
  bool ids = false;            ///< token ids instead of text
  bool stats = false;          ///< print the line of timings, piped or not
  bool raw = false;            ///< the prompt was continued as text
  bool explain_empty = false;  ///< if the answer has no text, explain why
};

/// Prints text (or ids, or JSON lines) to stdout and everything else to stderr. With several
/// samples the first one streams, and the others follow when all have ended. A canvas of the first
/// one is drawn on a terminal while it is filled.
class StreamPrinter {
 public:
  explicit StreamPrinter(const StreamOptions& options)
      : options_(options),
        terminal_(stdout_is_terminal()),
        draws_(terminal_ && !options.json && !options.ids),
        canvas_(terminal_columns()) {}

  void take(const ipc::Delta& delta);
  void take(const ipc::Event& event);
  /// Call after the last event.
  void end(const ipc::DoneEvent* done);
  /// The errno of a failed write to stdout (a full disk, for example); 0: none failed.
  int problem() const { return problem_; }

 private:
  void put(std::string_view text);
  void line(const std::string& json);

  const StreamOptions options_;
  const bool terminal_;
  const bool draws_;
  CanvasScreen canvas_;
  StatusLine status_;
  std::vector<std::string> others_;
  bool wrote_ = false;
  char last_ = '\n';
  int problem_ = 0;
};

/// A sentence that explains why an answer has no text; `raw`: its prompt was continued as text.
std::string why_empty(const ipc::DoneEvent& done, bool raw);

enum class OnInterrupt {
  kCancel,  ///< Ctrl-C cancels the request
  kLeave,   ///< Ctrl-C only stops reading it
};
/// Prints what arrives for `id` until its end; returns the exit status.
int follow(ipc::Client& client, const std::string& id, StreamPrinter& printer,
           OnInterrupt on_interrupt);

}  // namespace hearth::cli
