#include "models/gguf/fingerprint.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <memory>
#include <vector>

#include "models/gguf/file_mapping.h"
#include "models/gguf/weight_check.h"

namespace hearth::models {
namespace {

constexpr size_t kChunkBytes = 1 << 20;

int64_t to_ns(const timespec& time) { return time.tv_sec * 1'000'000'000LL + time.tv_nsec; }

FileIdentity identity_of(const struct stat& status) {
  return {.device = status.st_dev,
          .inode = status.st_ino,
          .size_bytes = static_cast<uint64_t>(status.st_size),
          .mtime_ns = to_ns(status.st_mtim),
          .ctime_ns = to_ns(status.st_ctim)};
}

std::string hex(XXH128_hash_t hash) {
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace

std::string fingerprint(std::span<const std::byte> content) {
  return hex(XXH3_128bits(content.data(), content.size()));
}

Result<std::string> fingerprint_file(const std::filesystem::path& path) {
  HEARTH_ASSIGN_OR_RETURN(const ReadableFile file, ReadableFile::open(path));
  return fingerprint_file(file);
}

Result<std::string> fingerprint_file(const ReadableFile& file, WeightCheck* check) {
  ::posix_fadvise(file.fd(), 0, 0, POSIX_FADV_SEQUENTIAL);
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(),
                                                                              XXH3_freeState);
  if (state == nullptr) {
    return Error::out_of_memory("no memory for the state of a digest");
  }
  XXH3_128bits_reset(state.get());
  std::vector<std::byte> chunk(kChunkBytes);
  off_t at = 0;
  while (true) {
    const ssize_t got = ::pread(file.fd(), chunk.data(), chunk.size(), at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error(file.path(), "read", errno);
    if (got == 0) break;
    at += got;
    const std::span<const std::byte> piece(chunk.data(), got);
    XXH3_128bits_update(state.get(), piece.data(), piece.size());
    if (check != nullptr) check->add(piece);
  }
  return hex(XXH3_128bits_digest(state.get()));
}

Result<FileIdentity> FileIdentity::of(const std::filesystem::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return system_error(path, "stat", errno);
  return identity_of(status);
}

Result<FileIdentity> FileIdentity::of(const ReadableFile& file) {
  struct stat status {};
  if (::fstat(file.fd(), &status) != 0) return system_error(file.path(), "stat", errno);
  return identity_of(status);
}

}  // namespace hearth::models
