#include "ipc/cli/connect/daemon_start.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>

#include "ipc/cli/connect/program.h"
#include "ipc/cli/terminal/interrupt.h"
#include "ipc/cli/terminal/terminal.h"
#include "ipc/files/paths.h"
#include "ipc/text/utf8.h"

extern char** environ;

namespace hearth::cli {
namespace fs = std::filesystem;
namespace {

constexpr auto kStartPatience = std::chrono::seconds(10);

/// The last line of a log that is not empty, as far as a terminal may see it.
std::string last_line(const fs::path& file) {
  std::ifstream in(file);
  std::string line, last;
  while (std::getline(in, line)) {
    if (!line.empty()) last = line;
  }
  return terminal_safe(ipc::to_valid_utf8(last));
}

/// A process in a session of its own, reading nothing and writing to `log`.
Result<pid_t> spawn_detached(const fs::path& program, const fs::path& log, bool allow_root) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log.c_str(),
                                     O_WRONLY | O_CREAT | O_TRUNC, 0600);
  ::posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  // A session of its own, so that neither Ctrl-C in this terminal nor its end reaches the daemon.
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
  std::string name = program.string();
  std::string insist = "--allow-root";
  char* argv[] = {name.data(), allow_root ? insist.data() : nullptr, nullptr};
  pid_t pid = -1;
  const int problem = ::posix_spawn(&pid, program.c_str(), &actions, &attributes, argv, environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  if (problem != 0) {
    return Error::unavailable(fmt::format("{}: {}", program.string(), std::strerror(problem)));
  }
  return pid;
}

}  // namespace

Result<ipc::Client> wait_for_daemon(pid_t pid, const ipc::ClientOptions& options,
                                    const fs::path& log) {
  StatusLine status;
  const auto start = std::chrono::steady_clock::now();
  while (true) {
    Result<ipc::Client> client = ipc::Client::connect(options);
    if (client.ok()) return client;
    int how = 0;
    if (::waitpid(pid, &how, WNOHANG) == pid) {
      return Error::unavailable(
          fmt::format("hearthd ended at once: {} (log: {})", last_line(log), log.string()));
    }
    const auto waited = std::chrono::steady_clock::now() - start;
    if (waited > kStartPatience || interrupted()) {
      return Error::unavailable(
          fmt::format("hearthd (pid {}) does not answer yet (log: {})", pid, log.string()));
    }
    status.show(fmt::format("waiting for hearthd, {:.1f} s",
                            std::chrono::duration<double>(waited).count()));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

Result<ipc::Client> start_daemon(bool allow_root) {
  const char* variable = std::getenv("HEARTH_ALLOW_ROOT");
  const bool insists = allow_root || (variable != nullptr && std::string_view(variable) == "1");
  if (::geteuid() == 0 && !insists) {
    return Error::unavailable(
        "and none is started as root; start the service (systemctl start hearth), be another user, "
        "or insist: --allow-root, HEARTH_ALLOW_ROOT=1");
  }
  HEARTH_ASSIGN_OR_RETURN(const ipc::Paths paths,
                          ipc::resolve_paths(ipc::Environment::of_process()));
  if (paths.service && ::getenv("HEARTH_RUNTIME_DIR") == nullptr) {
    return Error::unavailable("the service does not answer; start it with: systemctl start hearth");
  }
  const fs::path program = find_program("hearthd");
  if (program.empty()) return Error::unavailable("hearthd is neither next to hearth nor on PATH");
  HEARTH_TRY(ipc::ensure_private_dir(paths.runtime));
  HEARTH_TRY(ipc::ensure_private_dir(paths.state));
  const fs::path log = paths.state / "hearthd.log";
  complain(fmt::format("no daemon answers, starting {} (log: {}; stop it with: hearth stop)",
                       ipc::to_valid_utf8(program.string()), ipc::to_valid_utf8(log.string())));
  HEARTH_ASSIGN_OR_RETURN(const pid_t pid, spawn_detached(program, log, insists));
  ipc::ClientOptions options;
  options.runtime_dir = paths.runtime;
  return wait_for_daemon(pid, options, log);
}

}  // namespace hearth::cli
