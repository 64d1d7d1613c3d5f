#include "daemon/broker/process/child_process.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "daemon/broker/process/turns.h"

namespace hearth::broker {
namespace {

constexpr char kOomScoreAdj[] = "500";

// glibc 2.36 declares pidfd_open without C linkage. The kernel sets close-on-exec itself.
int open_pidfd(pid_t pid) { return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)); }

Error os_error(std::string_view what) {
  return Error::io(fmt::format("{}: {}", what, ::strerror(errno)));
}

// Runs between fork and exec. Other threads of the parent may hold any lock, so only
// async-signal-safe calls are allowed, and no allocation.
[[noreturn]] void become(char* const* argv, pid_t parent, int error_fd, int output_fd) {
  const auto fail = [error_fd] {
    const int code = errno;
    [[maybe_unused]] const ssize_t n = ::write(error_fd, &code, sizeof code);
    ::_exit(127);
  };
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);  // the parent ended before prctl
  if (const int fd = ::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC); fd >= 0) {
    [[maybe_unused]] const ssize_t n = ::write(fd, kOomScoreAdj, sizeof kOomScoreAdj - 1);
  }
  take_usual_turns();
  ::setpgid(0, 0);  // Ctrl-C at a terminal goes to the broker, which stops its children
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  const int null = ::open("/dev/null", O_RDONLY);
  if (output_fd >= 0 && ::dup2(output_fd, 2) < 0) fail();
  if (null < 0 || ::dup2(null, 0) < 0 || ::dup2(2, 1) < 0) fail();
  // Not every descriptor has the flag: Asio's accepted connections get it a moment later. Kernels
  // before 5.11 lack this flag of close_range.
  (void)::close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
  ::execv(argv[0], argv);
  fail();
  ::_exit(127);
}

}  // namespace

Result<ChildProcess> ChildProcess::start(const std::vector<std::string>& argv, int output_fd) {
  std::vector<char*> raw;
  for (const std::string& argument : argv) raw.push_back(const_cast<char*>(argument.c_str()));
  raw.push_back(nullptr);

  int error_pipe[2];  // closed by a successful exec; carries errno of a failed one
  if (::pipe2(error_pipe, O_CLOEXEC) != 0) return os_error("pipe");
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) become(raw.data(), parent, error_pipe[1], output_fd);
  const int fork_errno = errno;
  ::close(error_pipe[1]);
  if (pid < 0) {
    ::close(error_pipe[0]);
    errno = fork_errno;
    return os_error("fork");
  }
  int exec_errno = 0;
  ssize_t got;
  do {
    got = ::read(error_pipe[0], &exec_errno, sizeof exec_errno);
  } while (got < 0 && errno == EINTR);
  ::close(error_pipe[0]);
  ChildProcess child(pid, open_pidfd(pid));
  if (got == sizeof exec_errno) {
    errno = exec_errno;
    return os_error(argv[0]);  // the destructor reaps the child
  }
  if (child.pidfd_ < 0) return os_error("pidfd_open");
  return child;
}

ChildProcess::~ChildProcess() {
  if (pid_ < 0) return;
  signal(SIGKILL);
  reap();
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), pidfd_(std::exchange(other.pidfd_, -1)) {}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(pidfd_, other.pidfd_);
  return *this;
}

void ChildProcess::signal(int number) const {
  // The pid cannot be reused before reap().
  if (pid_ > 0) ::kill(pid_, number);
}

bool ChildProcess::has_ended() const {
  pollfd ended{.fd = pidfd_, .events = POLLIN, .revents = 0};
  return ::poll(&ended, 1, 0) == 1;
}

std::string ChildProcess::reap() {
  int status = 0;
  pid_t got;
  do {
    got = ::waitpid(pid_, &status, 0);
  } while (got < 0 && errno == EINTR);
  pid_ = -1;
  if (pidfd_ >= 0) ::close(std::exchange(pidfd_, -1));
  if (got < 0) return "unknown end";
  if (WIFSIGNALED(status)) {
    return fmt::format("signal {} ({})", WTERMSIG(status), ::strsignal(WTERMSIG(status)));
  }
  return fmt::format("exit status {}", WEXITSTATUS(status));
}

}  // namespace hearth::broker
