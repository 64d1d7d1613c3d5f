#include "daemon/broker/process/turns.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

namespace hearth::broker {
namespace {

constexpr uint64_t kShortNs = 100'000;  // the kernel's minimum

// The kernel's layout (sched_setattr(2)); glibc 2.36 has no wrapper.
struct SchedAttributes {
  uint32_t size;
  uint32_t policy;
  uint64_t flags;
  int32_t nice;
  uint32_t priority;
  uint64_t runtime_ns;
  uint64_t deadline_ns;
  uint64_t period_ns;
};

bool ask_for_turns_of(uint64_t ns) {
  SchedAttributes attributes{};
  const uint32_t size = sizeof attributes;
  // Keeps the other attributes, such as an inherited niceness or policy.
  if (::syscall(SYS_sched_getattr, 0, &attributes, size, 0) != 0) return false;
  if (attributes.policy != SCHED_OTHER && attributes.policy != SCHED_BATCH) return false;
  attributes.size = size;
  attributes.runtime_ns = ns;
  return ::syscall(SYS_sched_setattr, 0, &attributes, 0) == 0;
}

}  // namespace

bool take_short_turns() { return ask_for_turns_of(kShortNs); }

void take_usual_turns() {
  const int code = errno;
  ask_for_turns_of(0);
  errno = code;
}

}  // namespace hearth::broker
