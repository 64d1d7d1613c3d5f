#pragma once
// The locations of hearth's files, for the service and for a user, and the checks that a directory
// of sockets must pass before it is trusted.
//
//             service (root or user hearth,       a user
//             where /run/hearth exists)
//   runtime   /run/hearth                         $XDG_RUNTIME_DIR/hearth, else ~/.cache/hearth/run
//   state     /var/lib/hearth                     $XDG_STATE_HOME/hearth (~/.local/state/hearth)
//   config    /etc/hearth/hearth.toml             $XDG_CONFIG_HOME/hearth/hearth.toml (~/.config)
//   models    /var/lib/hearth/models              $XDG_DATA_HOME/hearth/models (~/.local/share),
//                                                 then /var/lib/hearth/models
// and finally the models installed with the program (share/hearth/models next to its bin). The
// environment takes precedence: HEARTH_RUNTIME_DIR, HEARTH_STATE_DIR, HEARTH_CONFIG (a file),
// HEARTH_MODEL_DIRS (separated by colons). XDG variables that are not absolute paths are ignored.

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "kernels/base/result.h"

namespace hearth::ipc {

/// The inputs of the choice, passed in so that tests can set them. Read it before threads start.
struct Environment {
  std::function<std::string(const char*)> variable;  ///< empty: unset
  std::filesystem::path home;
  bool service_user = false;         ///< root, or the user named hearth
  std::filesystem::path root = "/";  ///< prefix of the service's paths
  std::filesystem::path program;     ///< the running file, or empty

  static Environment of_process();
};

struct Paths {
  bool service = false;
  std::filesystem::path runtime;
  std::filesystem::path state;
  std::filesystem::path config_file;
  std::vector<std::filesystem::path> model_dirs;  ///< searched in order; some may not exist
};

/// kInvalidArgument names a variable that is not an absolute path. Creates nothing.
Result<Paths> resolve_paths(const Environment& environment);

/// Runtime directories that a client tries in order: its own, then the service's. If
/// HEARTH_RUNTIME_DIR is set, only that one.
std::vector<std::filesystem::path> client_runtime_dirs(const Environment& environment);

/// Creates `path` with `mode` (parents 0700) if it is absent. An existing path must be a directory
/// (not a link) owned by this process's user, with no permission beyond 0750; else kForbidden.
Result<void> ensure_private_dir(const std::filesystem::path& path, mode_t mode = 0700);

inline constexpr size_t kMaxSocketPathBytes = 107;  ///< sun_path without its terminating zero

/// "ipc:///run/hearth/api.sock". kInvalidArgument for a path over kMaxSocketPathBytes.
Result<std::string> ipc_endpoint(const std::filesystem::path& socket);

inline std::filesystem::path api_socket(const std::filesystem::path& runtime) {
  return runtime / "api.sock";
}
inline std::filesystem::path events_socket(const std::filesystem::path& runtime) {
  return runtime / "events.sock";
}
inline std::filesystem::path kv_events_socket(const std::filesystem::path& runtime) {
  return runtime / "kv-events.sock";
}
inline std::filesystem::path kv_replay_socket(const std::filesystem::path& runtime) {
  return runtime / "kv-replay.sock";
}
inline std::filesystem::path workers_dir(const std::filesystem::path& runtime) {
  return runtime / "workers";
}

}  // namespace hearth::ipc
