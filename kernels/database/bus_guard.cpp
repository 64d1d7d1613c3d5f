#include "kernels/database/bus_guard.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <mutex>

namespace hearth {
namespace {

thread_local volatile sig_atomic_t on = 0;
thread_local volatile sig_atomic_t has_tripped = 0;
struct sigaction before;
uintptr_t page_bytes = 4096;

// One system call and two flags, all of which a signal handler may use. Private memory replaces the
// page. It is writable, because the log's index is mapped for writing, and is unmapped with the
// rest when the connection is closed.
void on_bus_error(int signal, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  if (on != 0 && info->si_code == BUS_ADRERR) {
    void* page =
        reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(info->si_addr) & ~(page_bytes - 1));
    if (::mmap(page, page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
               -1, 0) != MAP_FAILED) {
      has_tripped = 1;
      errno = saved_errno;
      return;
    }
  }
  errno = saved_errno;
  if ((before.sa_flags & SA_SIGINFO) != 0) return before.sa_sigaction(signal, info, context);
  if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
    return before.sa_handler(signal);
  }
  // Returning repeats the access, which then ends the process as it would have.
  ::sigaction(SIGBUS, &before, nullptr);
}

}  // namespace

void BusGuard::turn_on() {
  static std::once_flag once;
  std::call_once(once, [] {
    page_bytes = ::sysconf(_SC_PAGESIZE);
    struct sigaction action {};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO;
    ::sigemptyset(&action.sa_mask);
    ::sigaction(SIGBUS, &action, &before);
  });
  on = 1;
}

bool BusGuard::tripped() { return has_tripped != 0; }
void BusGuard::clear() { has_tripped = 0; }

}  // namespace hearth
