#pragma once
// The directory of the sockets: created, protected by file modes, and locked by one daemon at a
// time.

#include <filesystem>
#include <string>

#include "ipc/files/paths.h"
#include "kernels/base/result.h"

namespace hearth::broker {

class RuntimeDir {
 public:
  /// Creates `path` if it does not exist (0750 for root's service, 0700 for a user) with a
  /// `workers` directory (0700, emptied) inside, and takes the lock. Errors: kInvalidArgument if
  /// the path is too long for a socket or belongs to another user, kUnavailable if another daemon
  /// holds the lock (the message has its pid), kIo.
  static Result<RuntimeDir> take(const std::filesystem::path& path);

  ~RuntimeDir();
  RuntimeDir(RuntimeDir&& other) noexcept;
  RuntimeDir& operator=(RuntimeDir&&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path api_socket() const { return ipc::api_socket(path_); }
  std::filesystem::path worker_socket(uint64_t number) const;

 private:
  RuntimeDir(std::filesystem::path path, int lock_fd) : path_(std::move(path)), lock_fd_(lock_fd) {}

  std::filesystem::path path_;
  int lock_fd_ = -1;
};

}  // namespace hearth::broker
