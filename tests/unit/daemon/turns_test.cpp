#include "daemon/broker/process/turns.h"

#include <doctest/doctest.h>
#include <sched.h>
#include <sys/resource.h>

#include <thread>

namespace hearth::broker {
namespace {

TEST_CASE("short time slices change neither policy nor niceness, and can be reset") {
  // On its own thread: its setting ends with it.
  std::thread([] {
    const int policy = ::sched_getscheduler(0);
    const int nice = ::getpriority(PRIO_PROCESS, 0);
    if (!take_short_turns()) MESSAGE("the kernel refuses: nothing else depends on it");
    CHECK(::sched_getscheduler(0) == policy);
    CHECK(::getpriority(PRIO_PROCESS, 0) == nice);
    take_usual_turns();
    CHECK(::sched_getscheduler(0) == policy);
    CHECK(::getpriority(PRIO_PROCESS, 0) == nice);
  }).join();
}

}  // namespace
}  // namespace hearth::broker
