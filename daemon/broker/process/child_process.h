#pragma once
// A child process of the broker: started without a shell, killed if the broker dies, watched
// through a pidfd.

#include <sys/types.h>

#include <string>
#include <vector>

#include "kernels/base/result.h"

namespace hearth::broker {

/// Owns a running child. Destruction kills it and waits for it.
class ChildProcess {
 public:
  /// Starts argv[0] with these arguments. The child gets /dev/null as stdin, our stderr as both
  /// stdout and stderr, no other descriptor, no blocked signals, a raised oom_score_adj (the kernel
  /// should kill a worker before the broker) and SIGKILL when the calling thread ends. Call from a
  /// thread that lives as long as the process. kIo names the step that failed. `output_fd` replaces
  /// our stderr for its stdout and stderr, unless it is -1.
  static Result<ChildProcess> start(const std::vector<std::string>& argv, int output_fd = -1);

  ~ChildProcess();
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;

  pid_t pid() const { return pid_; }
  /// Readable once the child has ended.
  int pidfd() const { return pidfd_; }
  void signal(int number) const;
  /// It has ended, so reap() will not wait.
  bool has_ended() const;

  /// Waits for its end if necessary and describes it ("exit status 3", "signal 9 (Killed)"). Call
  /// once; nothing is owned afterwards.
  std::string reap();

 private:
  ChildProcess(pid_t pid, int pidfd) : pid_(pid), pidfd_(pidfd) {}

  pid_t pid_ = -1;
  int pidfd_ = -1;
};

}  // namespace hearth::broker
