#pragma once
// Parses the command line: options.h of verbs/ as plain data, and the verb to run. Only parse.cpp
// uses the parsing library.

#include "ipc/cli/exit_code.h"
#include "ipc/cli/verbs/options.h"

namespace hearth::cli {

struct Parsed {
  Options options;
  int (*run)(const Options&) = nullptr;  ///< what the verb does; the result is the exit status
  bool finished = false;  ///< help, version or an error was printed: end with `status`
  int status = kOk;
};
Parsed parse(int argc, char** argv);

}  // namespace hearth::cli
