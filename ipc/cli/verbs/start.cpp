// hearth start: starts a daemon for this user if none answers.

#include <fmt/format.h>

#include "ipc/cli/connect/connection.h"
#include "ipc/cli/connect/daemon_start.h"
#include "ipc/cli/terminal/interrupt.h"
#include "ipc/cli/terminal/terminal.h"
#include "ipc/cli/verbs/verbs.h"

namespace hearth::cli {

int start(bool allow_root) {
  const Result<ipc::Client> running = ipc::Client::connect();
  if (running.ok()) {
    write_stdout(fmt::format("a daemon answers already (pid {})\n", running->daemon().pid));
    return kOk;
  }
  catch_interrupts();
  const Result<ipc::Client> started = start_daemon(allow_root);
  if (!started.ok()) {
    complain(started.error().message);
    return interrupted() ? kInterrupted : kNoDaemon;
  }
  write_stdout(fmt::format("started (pid {})\n", started->daemon().pid));
  return kOk;
}

}  // namespace hearth::cli
