#include "monitor/commands/command_output.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "ipc/text/utf8.h"

namespace hearth::monitor {
namespace {

constexpr int kLookEveryMs = 50;
constexpr size_t kErrorBytes = 2000;

/// Both ends of a pipe, closed by the destructor.
struct Pipe {
  int ends[2] = {-1, -1};
  Pipe() = default;
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    close(0);
    close(1);
  }
  bool open() { return ::pipe2(ends, O_CLOEXEC) == 0; }
  void close(int end) {
    if (const int fd = std::exchange(ends[end], -1); fd >= 0) ::close(fd);
  }
};

/// Reads what is available; false at the end.
bool take(int fd, std::string& out, size_t max_bytes) {
  std::array<char, 16384> bytes;
  const ssize_t count = ::read(fd, bytes.data(), bytes.size());
  if (count < 0) return errno == EINTR;
  if (count == 0) return false;
  const size_t met = count;
  if (out.size() <= max_bytes) out.append(bytes.data(), met);
  return true;
}

}  // namespace

Result<std::string> output_of(const std::filesystem::path& program,
                              const std::vector<std::string>& arguments, size_t max_bytes,
                              const std::atomic<bool>& stop) {
  Pipe out, error;
  if (!out.open() || !error.open()) {
    return Error::io(fmt::format("pipe: {}", std::strerror(errno)));
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out.ends[1], 1);
  posix_spawn_file_actions_adddup2(&actions, error.ends[1], 2);
  std::string name = program.filename();
  std::vector<std::string> words = arguments;
  std::vector<char*> argv = {name.data()};
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t pid = -1;
  const int problem = ::posix_spawn(&pid, program.c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  out.close(1);
  error.close(1);
  if (problem != 0) {
    return Error::io(fmt::format("{}: {}", name, std::strerror(problem)));
  }
  std::string text, complaint;
  bool killed = false;
  while (out.ends[0] >= 0 || error.ends[0] >= 0) {
    std::array<pollfd, 2> waits = {pollfd{out.ends[0], POLLIN, 0},
                                   pollfd{error.ends[0], POLLIN, 0}};
    ::poll(waits.data(), waits.size(), kLookEveryMs);
    if (!killed && (stop || text.size() > max_bytes)) {
      ::kill(pid, SIGKILL);
      killed = true;
    }
    if (waits[0].revents != 0 && !take(out.ends[0], text, max_bytes)) out.close(0);
    if (waits[1].revents != 0 && !take(error.ends[0], complaint, kErrorBytes)) error.close(0);
  }
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (text.size() > max_bytes) {
    return Error::too_large(fmt::format("{} prints over {} bytes", name, max_bytes));
  }
  if (killed) return Error::cancelled(name + " was stopped");
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return text;
  while (!complaint.empty() && complaint.back() == '\n') complaint.pop_back();
  if (complaint.empty()) complaint = name + " failed";
  return Error::internal(ipc::to_valid_utf8(complaint));
}

}  // namespace hearth::monitor
