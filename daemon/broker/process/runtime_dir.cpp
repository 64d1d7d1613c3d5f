#include "daemon/broker/process/runtime_dir.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

namespace hearth::broker {
namespace fs = std::filesystem;
namespace {

// The longest socket name in it: /workers/<20 digits>.sock
constexpr size_t kLongestName = sizeof "/workers/18446744073709551615.sock" - 1;

Error os_error(const fs::path& path, std::string_view what) {
  return Error::io(fmt::format("{}: {}: {}", path.string(), what, ::strerror(errno)));
}

Result<int> take_lock(const fs::path& file) {
  const int fd = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return os_error(file, "open");
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    const bool held = errno == EWOULDBLOCK;
    const Error error = os_error(file, "lock");
    char pid[32] = {};
    [[maybe_unused]] const ssize_t n = ::pread(fd, pid, sizeof pid - 1, 0);
    ::close(fd);
    if (!held) return error;
    return Error::unavailable(fmt::format("a hearth daemon (pid {}) already serves {}",
                                          std::atoi(pid), file.parent_path().string()));
  }
  const std::string pid = fmt::format("{}\n", ::getpid());
  if (::ftruncate(fd, 0) != 0 || ::pwrite(fd, pid.data(), pid.size(), 0) < 0) {
    const Error error = os_error(file, "write");
    ::close(fd);
    return error;
  }
  return fd;
}

}  // namespace

Result<RuntimeDir> RuntimeDir::take(const fs::path& path) {
  if (path.string().size() + kLongestName > ipc::kMaxSocketPathBytes) {
    return Error::invalid(
        fmt::format("runtime directory {}: {} bytes, want at most {}: a socket's path may "
                    "have {}",
                    path.string(), path.string().size(), ipc::kMaxSocketPathBytes - kLongestName,
                    ipc::kMaxSocketPathBytes));
  }
  HEARTH_TRY(ipc::ensure_private_dir(path, ::geteuid() == 0 ? 0750 : 0700));
  HEARTH_ASSIGN_OR_RETURN(const int lock_fd, take_lock(path / "lock"));
  RuntimeDir dir(path, lock_fd);
  // With the lock held, existing sockets belong to a daemon that is gone.
  std::error_code ignored;
  fs::remove_all(ipc::workers_dir(path), ignored);
  fs::remove(dir.api_socket(), ignored);
  HEARTH_TRY(ipc::ensure_private_dir(ipc::workers_dir(path), 0700));
  return dir;
}

RuntimeDir::~RuntimeDir() {
  if (lock_fd_ < 0) return;
  std::error_code ignored;
  fs::remove_all(ipc::workers_dir(path_), ignored);
  fs::remove(api_socket(), ignored);
  ::close(lock_fd_);  // keep the lock file: removing it would let two daemons lock different files
}

RuntimeDir::RuntimeDir(RuntimeDir&& other) noexcept
    : path_(std::move(other.path_)), lock_fd_(std::exchange(other.lock_fd_, -1)) {}

fs::path RuntimeDir::worker_socket(uint64_t number) const {
  return ipc::workers_dir(path_) / fmt::format("{}.sock", number);
}

}  // namespace hearth::broker
