#pragma once
// The directory of the sockets: made, guarded by file modes, and held by one daemon at a time.

#include <filesystem>
#include <string>

#include "ipc/files/paths.h"
#include "kernels/base/result.h"

namespace hearth::broker {

class RuntimeDir {
 public:
  /// Makes `path` where it is missing (0750 for root's service, 0700 for a user) with a `workers`
  /// directory (0700, emptied) inside, and takes the lock. Errors: kInvalidArgument for a path too
  /// long for a socket or one that belongs to somebody else, kUnavailable when another daemon
  /// holds it (the message has its pid), kIo.
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
