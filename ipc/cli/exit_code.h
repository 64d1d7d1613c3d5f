#pragma once

namespace hearth::cli {

/// The program's exit status, as the footer of --help lists it.
enum ExitCode {
  kOk = 0,
  kFailed = 1,        ///< the request or the verb failed
  kUsage = 2,         ///< the command line is wrong
  kNoDaemon = 3,      ///< no daemon answers, or it went away
  kInterrupted = 130  ///< Ctrl-C
};

}  // namespace hearth::cli
