#pragma once
// A second user of a test's daemon. It takes root to be two users.

#include <grp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <filesystem>

#include "kernels/base/check.h"

namespace hearth::tests {

inline constexpr uid_t kOtherUser = 65534;

/// Makes this process the other user's, if it is root's; it ends with its parent. False: it failed.
inline bool become_other_user(pid_t parent) {
  if (::geteuid() == 0 &&
      (::setgroups(0, nullptr) != 0 || ::setgid(kOtherUser) != 0 || ::setuid(kOtherUser) != 0)) {
    return false;
  }
  // A change of the user takes this setting away, so it comes after that.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  return ::getppid() == parent;
}

/// The other user may connect, as a member of the daemon's group could. `dir` contains `runtime`.
inline void let_other_user_in(const std::filesystem::path& dir,
                              const std::filesystem::path& runtime) {
  if (::geteuid() != 0) return;
  const auto give = [](const std::filesystem::path& path) {
    HEARTH_CHECK(::chown(path.c_str(), static_cast<uid_t>(-1), kOtherUser) == 0, "{}",
                 path.string());
  };
  HEARTH_CHECK(::chmod(dir.c_str(), 0711) == 0);
  give(runtime);
  HEARTH_CHECK(::chmod(runtime.c_str(), 0750) == 0);
  for (const char* name : {"api.sock", "events.sock", "http.sock"}) {
    if (std::filesystem::exists(runtime / name)) give(runtime / name);
  }
}

}  // namespace hearth::tests
