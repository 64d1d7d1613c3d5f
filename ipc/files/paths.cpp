#include "ipc/files/paths.h"

#include <fmt/core.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <system_error>

#include "ipc/text/utf8.h"

namespace hearth::ipc {
namespace fs = std::filesystem;
namespace {

std::string shown(const fs::path& path) { return to_valid_utf8(path.string()); }

/// An XDG directory, or `fallback` below the home directory. The specification wants relative
/// values ignored.
fs::path xdg(const Environment& environment, const char* variable, const char* fallback) {
  const fs::path given = environment.variable(variable);
  return given.is_absolute() ? given : environment.home / fallback;
}

Result<fs::path> absolute_variable(const Environment& environment, const char* variable) {
  fs::path given = environment.variable(variable);
  if (!given.empty() && !given.is_absolute()) {
    return Error::invalid(
        fmt::format("{}: met '{}', want an absolute path", variable, shown(given)), variable);
  }
  return given;
}

fs::path service_runtime(const Environment& environment) { return environment.root / "run/hearth"; }

fs::path user_runtime(const Environment& environment) {
  const fs::path given = environment.variable("XDG_RUNTIME_DIR");
  if (given.is_absolute()) return given / "hearth";
  return xdg(environment, "XDG_CACHE_HOME", ".cache") / "hearth/run";
}

bool is_service(const Environment& environment) {
  std::error_code ignored;
  return environment.service_user && fs::is_directory(service_runtime(environment), ignored);
}

/// /usr of /usr/bin/hearth and of /usr/libexec/hearth/hearth-worker-cpu.
fs::path prefix_of(const fs::path& program) {
  const fs::path dir = program.parent_path();
  const bool in_libexec = dir.filename() == "hearth" && dir.parent_path().filename() == "libexec";
  return in_libexec ? dir.parent_path().parent_path() : dir.parent_path();
}

std::vector<fs::path> split_list(const std::string& list) {
  std::vector<fs::path> out;
  size_t from = 0;
  while (from <= list.size()) {
    const size_t to = std::min(list.find(':', from), list.size());
    if (to > from) out.emplace_back(list.substr(from, to - from));
    from = to + 1;
  }
  return out;
}

std::string about(const fs::path& path, std::string_view problem) {
  return fmt::format("{}: {}", shown(path), problem);
}

}  // namespace

Environment Environment::of_process() {
  Environment environment;
  environment.variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value != nullptr ? value : "");
  };
  const passwd* user = ::getpwuid(::geteuid());
  environment.service_user =
      ::geteuid() == 0 || (user != nullptr && std::string_view(user->pw_name) == "hearth");
  environment.home = environment.variable("HOME");
  if (!environment.home.is_absolute()) environment.home = user != nullptr ? user->pw_dir : "/";
  std::error_code ignored;
  environment.program = fs::read_symlink("/proc/self/exe", ignored);
  return environment;
}

Result<Paths> resolve_paths(const Environment& environment) {
  Paths paths;
  paths.service = is_service(environment);
  HEARTH_ASSIGN_OR_RETURN(paths.runtime, absolute_variable(environment, "HEARTH_RUNTIME_DIR"));
  HEARTH_ASSIGN_OR_RETURN(paths.state, absolute_variable(environment, "HEARTH_STATE_DIR"));
  HEARTH_ASSIGN_OR_RETURN(paths.config_file, absolute_variable(environment, "HEARTH_CONFIG"));
  const fs::path service_models = environment.root / "var/lib/hearth/models";
  if (paths.runtime.empty()) {
    paths.runtime = paths.service ? service_runtime(environment) : user_runtime(environment);
  }
  if (paths.state.empty()) {
    paths.state = paths.service ? environment.root / "var/lib/hearth"
                                : xdg(environment, "XDG_STATE_HOME", ".local/state") / "hearth";
  }
  if (paths.config_file.empty()) {
    paths.config_file = paths.service
                            ? environment.root / "etc/hearth/hearth.toml"
                            : xdg(environment, "XDG_CONFIG_HOME", ".config") / "hearth/hearth.toml";
  }

  const std::string given = environment.variable("HEARTH_MODEL_DIRS");
  if (!given.empty()) {
    paths.model_dirs = split_list(given);
    for (const fs::path& dir : paths.model_dirs) {
      if (dir.is_absolute()) continue;
      return Error::invalid(
          fmt::format("HEARTH_MODEL_DIRS: met '{}', want absolute paths", shown(dir)),
          "HEARTH_MODEL_DIRS");
    }
    return paths;
  }
  if (!paths.service) {
    paths.model_dirs.push_back(xdg(environment, "XDG_DATA_HOME", ".local/share") / "hearth/models");
  }
  paths.model_dirs.push_back(service_models);
  if (!environment.program.empty()) {
    paths.model_dirs.push_back(prefix_of(environment.program) / "share/hearth/models");
  }
  return paths;
}

std::vector<fs::path> client_runtime_dirs(const Environment& environment) {
  const fs::path given = environment.variable("HEARTH_RUNTIME_DIR");
  if (!given.empty()) return {given};
  const fs::path service = service_runtime(environment);
  if (is_service(environment)) return {service};
  return {user_runtime(environment), service};
}

Result<void> ensure_private_dir(const fs::path& path, mode_t mode) {
  if (!path.is_absolute()) {
    return Error::invalid(about(path, "want an absolute path"));
  }
  fs::path parents;
  for (const fs::path& part : path.parent_path()) {
    parents /= part;
    if (::mkdir(parents.c_str(), 0700) != 0 && errno != EEXIST) {
      return Error::io(about(parents, std::strerror(errno)));
    }
  }
  if (::mkdir(path.c_str(), mode) == 0) {
    // The umask may have taken bits that the mode is meant to give (0750 for the group).
    if (::chmod(path.c_str(), mode) != 0) {
      return Error::io(about(path, std::strerror(errno)));
    }
  } else if (errno != EEXIST) {
    return Error::io(about(path, std::strerror(errno)));
  }
  struct stat found {};
  if (::lstat(path.c_str(), &found) != 0) {
    return Error::io(about(path, std::strerror(errno)));
  }
  if (!S_ISDIR(found.st_mode)) {
    return Error::forbidden(about(path, "met what is not a directory"));
  }
  if (found.st_uid != ::geteuid()) {
    return Error::forbidden(
        about(path, fmt::format("owned by uid {}, want {}", found.st_uid, ::geteuid())));
  }
  if ((found.st_mode & 0027) != 0) {
    return Error::forbidden(
        about(path, fmt::format("mode {:04o}, want 0700 or 0750", found.st_mode & 07777)));
  }
  return {};
}

Result<std::string> ipc_endpoint(const fs::path& socket) {
  const std::string text = socket.string();
  if (text.size() > kMaxSocketPathBytes) {
    return Error::invalid(fmt::format("{}: a socket path of {} bytes, want at most {}",
                                      shown(socket), text.size(), kMaxSocketPathBytes),
                          "HEARTH_RUNTIME_DIR");
  }
  return "ipc://" + text;
}

}  // namespace hearth::ipc
