#include "ipc/cli/connect/own_daemon.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "ipc/cli/connect/daemon_start.h"
#include "ipc/cli/connect/program.h"
#include "ipc/cli/terminal/terminal.h"
#include "ipc/files/paths.h"

namespace hearth::cli {
namespace fs = std::filesystem;
namespace {

constexpr auto kPause = std::chrono::milliseconds(20);
// Its own deadline for requests that still run is half a minute by default.
constexpr auto kEndPatience = std::chrono::seconds(60);

/// Runs with output in `log`, without the terminal's signals, and no longer than this program.
Result<pid_t> spawn_owned(const fs::path& program, std::vector<std::string> words,
                          const fs::path& log) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return Error::unavailable(fmt::format("fork: {}", std::strerror(errno)));
  if (pid > 0) return pid;
  ::setsid();
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(1);  // it has ended already
  const int in = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  const int out = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  ::dup2(in, STDIN_FILENO);
  ::dup2(out, STDOUT_FILENO);
  ::dup2(out, STDERR_FILENO);
  ::signal(SIGINT, SIG_DFL);
  ::signal(SIGTERM, SIG_DFL);
  ::execv(program.c_str(), argv.data());
  ::_exit(127);
}

}  // namespace

Result<OwnDaemon> OwnDaemon::start(const fs::path& configuration) {
  std::error_code problem;
  const fs::path file = fs::absolute(configuration, problem);
  if (::access(file.c_str(), R_OK) != 0) {
    return Error::not_found(fmt::format("{}: {}", configuration.string(), std::strerror(errno)));
  }
  HEARTH_ASSIGN_OR_RETURN(const ipc::Paths paths,
                          ipc::resolve_paths(ipc::Environment::of_process()));
  const fs::path program = find_program("hearthd");
  if (program.empty()) return Error::unavailable("hearthd is neither next to hearth nor on PATH");
  HEARTH_TRY(ipc::ensure_private_dir(paths.state));
  std::string folder = (paths.state / "own-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) {
    return Error::io(fmt::format("{}: {}", folder, std::strerror(errno)));
  }
  const fs::path log = fs::path(folder) / "log";
  Result<pid_t> pid =
      spawn_owned(program,
                  {"hearthd", "--config", file.string(), "--runtime-dir", folder + "/run", "--set",
                   "server.state_dir=" + folder + "/state", "--set", "http.enabled=false", "--set",
                   "server.tcp=\"\""},
                  log);
  OwnDaemon out(folder, pid.ok() ? *pid : -1);
  if (!pid) return pid.take_error();
  ipc::ClientOptions options;
  options.runtime_dir = out.folder_ / "run";
  Result<ipc::Client> first = wait_for_daemon(*pid, options, log);
  if (first.ok()) return out;
  // A process that has ended was waited for, and its number may belong to another.
  if (::kill(*pid, 0) != 0 || ::waitpid(*pid, nullptr, WNOHANG) != 0) out.pid_ = -1;
  Error error = first.take_error();
  error.message.erase(std::min(error.message.size(), error.message.find(" (log: ")));  // it goes
  return error;
}

OwnDaemon::OwnDaemon(OwnDaemon&& other) noexcept
    : folder_(std::exchange(other.folder_, {})), pid_(std::exchange(other.pid_, -1)) {}

OwnDaemon::~OwnDaemon() {
  if (pid_ > 0) {
    ::kill(pid_, SIGTERM);
    StatusLine status;
    const auto begun = std::chrono::steady_clock::now();
    while (::waitpid(pid_, nullptr, WNOHANG) == 0) {
      const auto waited = std::chrono::steady_clock::now() - begun;
      if (waited > kEndPatience) {
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
        break;
      }
      status.show(fmt::format("waiting for its hearthd to end, {:.1f} s",
                              std::chrono::duration<double>(waited).count()));
      std::this_thread::sleep_for(kPause);
    }
    status.clear();
  }
  std::error_code ignored;
  if (!folder_.empty()) fs::remove_all(folder_, ignored);
}

Result<ipc::Client> OwnDaemon::connect() const {
  ipc::ClientOptions options;
  options.runtime_dir = folder_ / "run";
  return ipc::Client::connect(options);
}

}  // namespace hearth::cli
