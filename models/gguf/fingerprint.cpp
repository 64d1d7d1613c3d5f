#include "models/gguf/fingerprint.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <memory>
#include <vector>

#include "kernels/base/check.h"
#include "models/gguf/file_mapping.h"
#include "models/gguf/gguf_file.h"
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

/// XXH3-128 of bytes that arrive in pieces.
class Digest {
 public:
  Digest() {
    HEARTH_CHECK(state_ != nullptr, "no memory for the state of a digest");
    XXH3_128bits_reset(state_.get());
  }
  void add(std::span<const std::byte> bytes) {
    XXH3_128bits_update(state_.get(), bytes.data(), bytes.size());
  }
  std::string hex() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(state_.get());
    return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
  }

 private:
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> state_{XXH3_createState()};
};

Result<void> read_into(const ReadableFile& file, Digest* digest, WeightCheck* check) {
  ::posix_fadvise(file.fd(), 0, 0, POSIX_FADV_SEQUENTIAL);
  std::vector<std::byte> chunk(kChunkBytes);
  off_t at = 0;
  while (true) {
    const ssize_t got = ::pread(file.fd(), chunk.data(), chunk.size(), at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error(file.path(), "read", errno);
    if (got == 0) return {};
    at += got;
    const std::span<const std::byte> piece(chunk.data(), got);
    digest->add(piece);
    if (check != nullptr) check->add(piece);
  }
}

}  // namespace

std::string fingerprint(std::span<const std::byte> content) {
  Digest digest;
  digest.add(content);
  return digest.hex();
}

std::string fingerprint(const GgufFile& file) {
  Digest digest;
  for (const GgufPart& part : file.parts()) digest.add(part.content);
  return digest.hex();
}

Result<std::string> fingerprint_file(const std::filesystem::path& path) {
  HEARTH_ASSIGN_OR_RETURN(const ReadableFile file, ReadableFile::open(path));
  return fingerprint_files({&file, 1});
}

Result<std::string> fingerprint_files(std::span<const ReadableFile> files, WeightCheck* check) {
  Digest digest;
  for (const ReadableFile& file : files) HEARTH_TRY(read_into(file, &digest, check));
  return digest.hex();
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

Result<std::vector<FileIdentity>> identities_of(std::span<const ReadableFile> files) {
  std::vector<FileIdentity> out;
  for (const ReadableFile& file : files) {
    HEARTH_ASSIGN_OR_RETURN(out.emplace_back(), FileIdentity::of(file));
  }
  return out;
}

}  // namespace hearth::models
