#pragma once
// A daemon of this program's own, by a configuration file, next to the one that runs.

#include <sys/types.h>

#include <filesystem>

#include "ipc/client/client.h"
#include "kernels/base/result.h"

namespace hearth::cli {

/// Ends with its owner, which waits for it. Its sockets, log and state are in a folder below the
/// user's state folder, which is removed then: nothing is found in a cache and nothing stays. It
/// listens neither over HTTP nor over TCP, whatever the file has.
class OwnDaemon {
 public:
  /// Waits until it answers, at most 10 s. kUnavailable with the reason, as start_daemon.
  static Result<OwnDaemon> start(const std::filesystem::path& configuration);
  ~OwnDaemon();
  OwnDaemon(OwnDaemon&& other) noexcept;
  OwnDaemon& operator=(OwnDaemon&&) = delete;

  Result<ipc::Client> connect() const;

 private:
  OwnDaemon(std::filesystem::path folder, pid_t pid) : folder_(std::move(folder)), pid_(pid) {}

  std::filesystem::path folder_;  ///< empty: moved away
  pid_t pid_ = -1;
};

}  // namespace hearth::cli
