#include "daemon/worker/tools/stop_flag.h"

#include <signal.h>

#include <initializer_list>

namespace hearth::worker {
namespace {

volatile sig_atomic_t g_stop = 0;

}  // namespace

void catch_stop_signals() {
  struct sigaction action {};
  action.sa_handler = [](int) { g_stop = 1; };
  action.sa_flags = SA_RESTART;
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) ::sigaction(number, &action, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
}

bool stop_wanted() { return g_stop != 0; }

}  // namespace hearth::worker
