#include "ipc/cli/terminal/terminal.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>

namespace hearth::cli {

bool stdout_is_terminal() { return ::isatty(STDOUT_FILENO) == 1; }
bool stderr_is_terminal() { return ::isatty(STDERR_FILENO) == 1; }

size_t terminal_columns() {
  if (!stdout_is_terminal()) return 0;
  winsize size{};
  const bool known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

bool stdout_and_stderr_are_one() {
  struct stat out {};
  struct stat err {};
  return ::fstat(STDOUT_FILENO, &out) == 0 && ::fstat(STDERR_FILENO, &err) == 0 &&
         out.st_dev == err.st_dev && out.st_ino == err.st_ino;
}

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
