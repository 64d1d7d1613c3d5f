#pragma once
// What may reach a terminal.

#include <cstddef>
#include <string>
#include <string_view>

#include "ipc/text/shown_text.h"

namespace hearth::cli {

bool stdout_is_terminal();
bool stderr_is_terminal();
/// Characters of a line of stdout's terminal; 0 where it is none: lines may be as long as they are.
size_t terminal_columns();
/// Both go to the same file, pipe or terminal.
bool stdout_and_stderr_are_one();

using ipc::human_bytes;
using ipc::human_count;
using ipc::human_duration;
using ipc::terminal_safe;

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

}  // namespace hearth::cli
