#pragma once
// A child process of the broker: started without a shell, tied to our life, watched by a pidfd.

#include <sys/types.h>

#include <string>
#include <vector>

#include "kernels/base/result.h"

namespace hearth::broker {

/// Owns a running child. Destruction kills it and waits for it.
class ChildProcess {
 public:
  /// Starts argv[0] with these arguments. The child gets stdin from /dev/null, our stdout as its
  /// stderr's companion (both to our stderr), no other descriptor, no blocked signal, a raised
  /// oom_score_adj (the kernel shall end a worker before it ends us) and SIGKILL when the calling
  /// thread ends. Call from the thread that lives as long as the process. kIo names what failed.
  /// `output_fd`: its stdout and stderr go there instead; -1: to our stderr.
  static Result<ChildProcess> start(const std::vector<std::string>& argv, int output_fd = -1);

  ~ChildProcess();
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;

  pid_t pid() const { return pid_; }
  /// Readable once the child has ended.
  int pidfd() const { return pidfd_; }
  void signal(int number) const;
  /// It has ended, and reap() will not wait.
  bool has_ended() const;

  /// How it ended, as words ("exit status 3", "signal 9 (Killed)"), waiting for it if need be.
  /// Call once; afterwards nothing is owned.
  std::string reap();

 private:
  ChildProcess(pid_t pid, int pidfd) : pid_(pid), pidfd_(pidfd) {}

  pid_t pid_ = -1;
  int pidfd_ = -1;
};

}  // namespace hearth::broker
