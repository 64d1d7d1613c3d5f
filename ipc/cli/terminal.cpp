#include "ipc/cli/terminal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace hearth::cli {

bool stdout_is_terminal() { return ::isatty(STDOUT_FILENO) == 1; }
bool stderr_is_terminal() { return ::isatty(STDERR_FILENO) == 1; }

bool write_stdout(std::string_view text) {
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() &&
         std::fflush(stdout) == 0;
}

void write_stderr(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

void complain(std::string_view message) {
  write_stderr(fmt::format("hearth: {}\n", terminal_safe(message)));
}

void StatusLine::show(std::string_view text) {
  if (!stderr_is_terminal()) return;
  write_stderr("\r\x1b[2K" + terminal_safe(text));
  shown_ = true;
}

void StatusLine::clear() {
  if (!shown_) return;
  write_stderr("\r\x1b[2K");
  shown_ = false;
}

}  // namespace hearth::cli
