#pragma once
// Output to terminals and pipes.

#include <cstddef>
#include <string>
#include <string_view>

#include "ipc/text/shown_text.h"

namespace hearth::cli {

bool stdout_is_terminal();
bool stderr_is_terminal();
/// Columns of stdout's terminal; 0 if stdout is not a terminal, so that lines need not be cut.
size_t terminal_columns();
/// Whether both write to the same file, pipe or terminal.
bool stdout_and_stderr_are_one();

using ipc::human_bytes;
using ipc::human_count;
using ipc::human_duration;
using ipc::terminal_safe;

/// Writes to stdout without buffering; false if its reader has gone.
bool write_stdout(std::string_view text);
/// Writes to stderr. Unlike fmt::print it does not throw if stderr is closed or full.
void write_stderr(std::string_view text);
/// "hearth: <message>\n" on stderr.
void complain(std::string_view message);

/// A line on stderr that the next one overwrites; prints nothing if stderr is not a terminal.
class StatusLine {
 public:
  ~StatusLine() { clear(); }
  void show(std::string_view text);
  void clear();

 private:
  bool shown_ = false;
};

}  // namespace hearth::cli
