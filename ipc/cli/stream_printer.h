#pragma once
// The answers of a generation on a terminal or in a pipe, and following one to its end.

#include <string>
#include <string_view>
#include <vector>

#include "ipc/cli/terminal.h"
#include "ipc/client/client.h"

namespace hearth::cli {

/// How a generation is shown.
struct StreamOptions {
  bool json = false;           ///< one JSON line per event
  bool ids = false;            ///< token ids instead of text
  bool stats = false;          ///< the line of timings, piped or not
  bool raw = false;            ///< the prompt was continued as text
  bool explain_empty = false;  ///< say why there is no text at all
};

/// Puts what arrives where it belongs: text (or ids, or JSON lines) on stdout, everything else on
/// stderr. With several samples the first one streams, the others follow when all have ended.
class StreamPrinter {
 public:
  explicit StreamPrinter(const StreamOptions& options)
      : options_(options), terminal_(stdout_is_terminal()) {}

  void take(const ipc::Delta& delta);
  void take(const ipc::Event& event);
  /// After the last event.
  void end(const ipc::DoneEvent* done);
  /// Why stdout takes no more (a full disk, say); 0: it does.
  int problem() const { return problem_; }

 private:
  void put(std::string_view text);
  void line(const std::string& json);

  const StreamOptions options_;
  const bool terminal_;
  StatusLine status_;
  std::vector<std::string> others_;
  bool wrote_ = false;
  char last_ = '\n';
  int problem_ = 0;
};

/// Why an answer has no text, in a sentence; `raw`: its prompt was continued as text.
std::string why_empty(const ipc::DoneEvent& done, bool raw);

enum class OnInterrupt {
  kCancel,  ///< Ctrl-C ends the request
  kLeave,   ///< and here only the reading of it
};
/// Shows what arrives for `id` until its end; the program's exit status.
int follow(ipc::Client& client, const std::string& id, StreamPrinter& printer,
           OnInterrupt on_interrupt);

}  // namespace hearth::cli
