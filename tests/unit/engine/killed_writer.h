#pragma once
// A process that writes to a store until it is killed, again and again.

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <random>

#include "tests/skip.h"

namespace hearth::tests {

/// Forks, runs `write` in the child, which must not return, kills it at a random moment, and runs
/// `check` in the parent: 500 times with full counts, else 5. The child calls `report_saved` after
/// each save: half of the children are killed after a first save, the others possibly before.
inline void kill_writers(
    const std::function<void(const std::function<void()>& report_saved)>& write,
    const std::function<void()>& check) {
  std::mt19937 random(3);
  const int cycles = full_counts() ? 500 : 5;
  for (int cycle = 0; cycle < cycles; ++cycle) {
    int saved[2];
    REQUIRE(::pipe(saved) == 0);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      ::signal(SIGPIPE, SIG_IGN);  // the parent may no longer listen
      bool reported = false;
      write([&] {
        if (reported) return;
        reported = ::write(saved[1], "s", 1) == 1;
      });
      ::_exit(1);
    }
    ::close(saved[1]);
    char byte = 0;
    if (cycle % 2 == 0) REQUIRE(::read(saved[0], &byte, 1) == 1);
    ::close(saved[0]);
    ::usleep(5'000 + random() % 60'000);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    check();
  }
}

}  // namespace hearth::tests
