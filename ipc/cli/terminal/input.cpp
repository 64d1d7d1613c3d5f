#include "ipc/cli/terminal/input.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

#include "ipc/cli/terminal/terminal.h"
#include "ipc/schema/protocol.h"
#include "ipc/text/utf8.h"

namespace hearth::cli {
namespace {

Result<std::string> read_all(std::FILE* in, const std::string& name) {
  std::string text;
  char chunk[65536];
  while (const size_t n = std::fread(chunk, 1, sizeof chunk, in)) {
    text.append(chunk, n);
    if (text.size() > ipc::kMaxRequestBytes) {
      return Error::too_large(fmt::format("{}: more than {} bytes", name, ipc::kMaxRequestBytes));
    }
  }
  if (std::ferror(in) != 0) {
    return Error::io(fmt::format("{}: {}", name, std::strerror(errno)));
  }
  return text;
}

Result<std::string> read_file(const std::string& file) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> in(std::fopen(file.c_str(), "rb"),
                                                           &std::fclose);
  if (in == nullptr) {
    return Error::io(fmt::format("{}: {}", file, std::strerror(errno)));
  }
  return read_all(in.get(), file);
}

Result<std::string> without_newline(Result<std::string> text) {
  if (text.ok() && text->ends_with('\n')) text->pop_back();
  return text;
}

Result<std::string> read_source(const std::vector<std::string>& words, const std::string& file) {
  if (!words.empty()) {
    if (!file.empty()) {
      return Error::invalid("met both words and a file, want one");
    }
    return fmt::format("{}", fmt::join(words, " "));
  }
  if (file.empty() && stdin_is_terminal()) return std::string();
  return without_newline(!file.empty() && file != "-" ? read_file(file) : read_all(stdin, "stdin"));
}

/// Whether standard input may hold a text: not a device such as /dev/null, nor a service's socket.
bool stdin_holds_text() {
  struct stat info {};
  return ::fstat(STDIN_FILENO, &info) == 0 && (S_ISFIFO(info.st_mode) || S_ISREG(info.st_mode));
}

/// Waits for a pipe that stays open without input, such as a job's stdin, and reports that it
/// waits.
void report_waiting() {
  constexpr int kSilenceMs = 2000;
  pollfd input{STDIN_FILENO, POLLIN, 0};
  if (::poll(&input, 1, kSilenceMs) != 0) return;
  complain("reading the pipe on stdin, which follows the words; < /dev/null leaves it out");
}

Result<std::string> check_utf8(std::string text) {
  const size_t valid = ipc::valid_utf8_prefix(text);
  if (valid != text.size()) {
    return Error::invalid(fmt::format("byte {} is not UTF-8", valid + 1));
  }
  return text;
}

}  // namespace

bool stdin_is_terminal() { return ::isatty(STDIN_FILENO) == 1; }

Result<std::string> read_text(const std::vector<std::string>& words, const std::string& file) {
  HEARTH_ASSIGN_OR_RETURN(std::string text, read_source(words, file));
  return check_utf8(std::move(text));
}

std::optional<std::string> text_of_verb(const std::vector<std::string>& words,
                                        const std::string& file) {
  Result<std::string> text = read_text(words, file);
  if (text.ok()) return std::move(*text);
  complain("text: " + text.error().message);
  return std::nullopt;
}

Result<std::string> read_prompt(const std::vector<std::string>& words, const std::string& file) {
  if (words.empty()) return read_text({}, file);
  std::string out = fmt::format("{}", fmt::join(words, " "));
  if (!file.empty() || stdin_holds_text()) {
    if (file.empty()) report_waiting();
    HEARTH_ASSIGN_OR_RETURN(const std::string more, read_source({}, file.empty() ? "-" : file));
    if (!more.empty()) out += "\n\n" + more;
  }
  return check_utf8(std::move(out));
}

}  // namespace hearth::cli
