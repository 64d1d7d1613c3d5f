#include "ipc/cli/chat/line_editor.h"

#include <fcntl.h>
#include <histedit.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cwchar>
#include <iostream>
#include <string_view>
#include <utility>

#include "kernels/base/numbers.h"

namespace hearth::cli {
namespace {

constexpr int kHistoryLines = 1000;
constexpr char kCtrlC = 3;

}  // namespace

struct LineEditor::Impl {
  explicit Impl(std::filesystem::path file) : history_file(std::move(file)) {
    if (::isatty(STDIN_FILENO) != 1 || ::isatty(STDOUT_FILENO) != 1) return;
    // The library counts characters by the locale's encoding.
    const char* const locale = std::setlocale(LC_CTYPE, "");
    if (locale == nullptr || std::string_view(locale) == "C") std::setlocale(LC_CTYPE, "C.UTF-8");
    editor = ::el_init("hearth", stdin, stdout, stderr);
    if (editor == nullptr) return;
    ::el_set(editor, EL_CLIENTDATA, this);
    ::el_set(editor, EL_PROMPT, &Impl::prompt_of);
    ::el_set(editor, EL_EDITOR, "emacs");
    ::el_set(editor, EL_SIGNAL, 1);  // restore the terminal before a signal ends the program
    // While a line is edited, Ctrl-C is a key that only drops the line. It is handled where keys
    // are read: an editor function of our own would need a name, which the library never frees.
    ::el_set(editor, EL_SETTY, "-d", "-isig", nullptr);
    ::el_wset(editor, EL_GETCFN, &Impl::read_key);
    ::el_set(editor, EL_BIND, "^R", "em-inc-search-prev", nullptr);
    history = ::history_init();
    if (history == nullptr) return;
    HistEvent event;
    ::history(history, &event, H_SETSIZE, kHistoryLines);
    ::history(history, &event, H_SETUNIQUE, 1);
    ::el_set(editor, EL_HIST, ::history, history);
    if (history_file.empty()) return;
    // The library would create the file readable for other users.
    const int fd = ::open(history_file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return;
    ::fchmod(fd, 0600);
    ::close(fd);
    ::history(history, &event, H_LOAD, history_file.c_str());
  }
  ~Impl() {
    if (history != nullptr) ::history_end(history);
    if (editor != nullptr) ::el_end(editor);
  }

  static Impl* of(EditLine* editor) {
    Impl* impl = nullptr;
    ::el_get(editor, EL_CLIENTDATA, &impl);
    return impl;
  }
  static const char* prompt_of(EditLine* editor) { return of(editor)->prompt.c_str(); }
  static int read_key(EditLine* editor, wchar_t* key) {
    std::mbstate_t state{};
    while (true) {
      char byte = 0;
      const ssize_t n = ::read(STDIN_FILENO, &byte, 1);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return narrow<int>(n);
      if (byte == kCtrlC) {
        of(editor)->interrupted = true;
        return 0;
      }
      const size_t done = std::mbrtowc(key, &byte, 1, &state);
      if (done == static_cast<size_t>(-2)) continue;  // an incomplete character
      if (done != static_cast<size_t>(-1)) return 1;
      state = {};  // an invalid byte is ignored
    }
  }

  const std::filesystem::path history_file;
  EditLine* editor = nullptr;
  ::History* history = nullptr;
  std::string prompt;
  bool interrupted = false;
};

LineEditor::LineEditor(std::filesystem::path history)
    : impl_(std::make_unique<Impl>(std::move(history))) {}
LineEditor::~LineEditor() = default;

LineEditor::Outcome LineEditor::read(const std::string& prompt, std::string* line) {
  line->clear();
  if (impl_->editor == nullptr) {
    return std::getline(std::cin, *line) ? Outcome::kLine : Outcome::kEnd;
  }
  impl_->prompt = prompt;
  impl_->interrupted = false;
  // The library prints the prompt before it takes the terminal over. Input that answers the prompt
  // at once (from a program, a paste) would go to the terminal's own line editing, which loses
  // Ctrl-D and ends the program at Ctrl-C.
  ::el_set(impl_->editor, EL_PREP_TERM, 1);
  int count = 0;
  const char* const text = ::el_gets(impl_->editor, &count);
  if (impl_->interrupted) {
    ::el_reset(impl_->editor);
    std::fputs("\n", stdout);
    return Outcome::kInterrupted;
  }
  if (text == nullptr || count <= 0) {
    std::fputs("\n", stdout);
    return Outcome::kEnd;
  }
  line->assign(text, count);
  if (line->ends_with('\n')) line->pop_back();
  return Outcome::kLine;
}

void LineEditor::remember(const std::string& text) {
  // Text of several lines is left out, because the file would return it as separate entries.
  if (impl_->history == nullptr || text.empty() || text.find('\n') != std::string::npos) return;
  HistEvent event;
  ::history(impl_->history, &event, H_ENTER, text.c_str());
  if (!impl_->history_file.empty()) {
    ::history(impl_->history, &event, H_SAVE, impl_->history_file.c_str());
  }
}

}  // namespace hearth::cli
