#pragma once
// What may reach a terminal, and how numbers look on it.

#include <cstdint>
#include <string>
#include <string_view>

namespace hearth::cli {

bool stdout_is_terminal();
bool stderr_is_terminal();

/// `text` (valid UTF-8) with every control character but newline and tab shown and not obeyed:
/// ESC as ␛, the 8-bit controls as U+FFFD. For a model's text and names from outside.
std::string terminal_safe(std::string_view text);

/// Writes to stdout at once; false when nobody reads any more.
bool write_stdout(std::string_view text);
/// Writes to stderr. Not fmt::print, which throws where stderr is closed or full.
void write_stderr(std::string_view text);
/// "hearth: <message>\n" on stderr.
void complain(std::string_view message);

/// A line on stderr that the next one overwrites; nothing where stderr is no terminal.
class StatusLine {
 public:
  ~StatusLine() { clear(); }
  void show(std::string_view text);
  void clear();

 private:
  bool shown_ = false;
};

std::string human_bytes(uint64_t bytes);  ///< "1.2 GiB"
std::string human_count(uint64_t count);  ///< "1.1 M"
std::string human_duration(int64_t ms);   ///< "850 ms", "12.3 s", "2 h 5 min"

}  // namespace hearth::cli
