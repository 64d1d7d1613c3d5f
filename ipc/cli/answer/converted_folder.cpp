#include "ipc/cli/answer/converted_folder.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>

#include "ipc/cli/connect/program.h"
#include "ipc/files/paths.h"
#include "ipc/text/utf8.h"

namespace hearth::cli {
namespace fs = std::filesystem;
namespace {

/// Named after the folder, and different for folders of the same name.
fs::path place_of(const fs::path& folder, const fs::path& state) {
  const uint64_t hash = fs::hash_value(folder) & 0xFFFF'FFFF;
  return state / "converted" / fmt::format("{}-{:08x}.gguf", folder.filename().string(), hash);
}

bool is_up_to_date(const fs::path& file, const fs::path& folder) {
  std::error_code problem;
  const auto made = fs::last_write_time(file, problem);
  if (problem) return false;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, problem)) {
    std::error_code ignored;
    if (entry.is_regular_file(ignored) && entry.last_write_time(ignored) > made) return false;
  }
  return !problem;
}

/// Runs the converter, whose output goes to stderr.
Result<void> convert(const fs::path& folder, const fs::path& file) {
  const fs::path program = find_program("hearth-worker-cpu");
  if (program.empty()) {
    return Error::not_found(
        "hearth-worker-cpu, which converts, is neither next to hearth nor on PATH");
  }
  std::string words[] = {program.string(), "convert", folder.string(), file.string()};
  char* argv[] = {words[0].data(), words[1].data(), words[2].data(), words[3].data(), nullptr};
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  pid_t pid = -1;
  const int problem = ::posix_spawn(&pid, argv[0], &actions, nullptr, argv, environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (problem != 0) {
    return Error::unavailable(fmt::format("{}: {}", words[0], std::strerror(problem)));
  }
  int how = 0;
  while (::waitpid(pid, &how, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(how) && WEXITSTATUS(how) == 0) return {};
  return Error::invalid(fmt::format("{}: not converted", ipc::to_valid_utf8(folder.string())),
                        "model");
}

}  // namespace

bool is_weights_folder(const fs::path& folder) {
  std::error_code problem;
  return fs::is_directory(folder, problem) && fs::is_regular_file(folder / "config.json", problem);
}

Result<fs::path> file_of_folder(const fs::path& folder) {
  std::error_code problem;
  const fs::path whole = fs::canonical(folder, problem);
  if (problem) {
    return Error::io(fmt::format("{}: {}", ipc::to_valid_utf8(folder.string()), problem.message()));
  }
  HEARTH_ASSIGN_OR_RETURN(const ipc::Paths paths,
                          ipc::resolve_paths(ipc::Environment::of_process()));
  return place_of(whole, paths.state);
}

Result<fs::path> converted_folder(const fs::path& folder) {
  HEARTH_ASSIGN_OR_RETURN(fs::path file, file_of_folder(folder));
  HEARTH_TRY(ipc::ensure_private_dir(file.parent_path()));
  if (!is_up_to_date(file, folder)) HEARTH_TRY(convert(folder, file));
  return file;
}

}  // namespace hearth::cli
