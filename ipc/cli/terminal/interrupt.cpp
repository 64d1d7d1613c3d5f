#include "ipc/cli/terminal/interrupt.h"

#include <unistd.h>

#include <csignal>

#include "ipc/cli/exit_code.h"

namespace hearth::cli {
namespace {

volatile std::sig_atomic_t g_interrupted = 0;

void on_signal(int) {
  if (g_interrupted != 0) ::_exit(kInterrupted);
  g_interrupted = 1;
}

}  // namespace

void catch_interrupts() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

bool interrupted() { return g_interrupted != 0; }
void clear_interrupt() { g_interrupted = 0; }

}  // namespace hearth::cli
