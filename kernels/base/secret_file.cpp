#include "kernels/base/secret_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <system_error>
#include <vector>

#include "kernels/base/log.h"
#include "kernels/base/random.h"

namespace hearth {
namespace fs = std::filesystem;
namespace {

/// Attempts to make a secret while other processes make and replace theirs.
constexpr int kSecretAttempts = 5;

Error secret_error(const fs::path& file, std::string_view what) {
  return Error::io(fmt::format("{}: {}: {}", file.filename().string(), what, std::strerror(errno)));
}

class SecretFd {
 public:
  explicit SecretFd(int fd) : fd_(fd) {}
  ~SecretFd() {
    if (fd_ >= 0) ::close(fd_);
  }
  SecretFd(const SecretFd&) = delete;
  SecretFd& operator=(const SecretFd&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

enum class Found { kSecret, kNothing, kDamaged };

// Damaged: not a regular file, or of another size (0 after a power cut before the bytes reached the
// disk).
Result<Found> read_secret(const fs::path& file, std::span<std::byte> secret) {
  // O_NONBLOCK: opening a FIFO must not wait for its writer.
  const SecretFd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (fd.get() < 0 && errno == ENOENT) return Found::kNothing;
  if (fd.get() < 0 && errno == ELOOP) return Found::kDamaged;
  if (fd.get() < 0) return secret_error(file, "cannot be opened");
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) return secret_error(file, "cannot be read");
  if (!S_ISREG(status.st_mode)) return Found::kDamaged;
  std::vector<std::byte> found(secret.size() + 1);
  const ssize_t bytes = ::read(fd.get(), found.data(), found.size());
  if (bytes < 0) return secret_error(file, "cannot be read");
  if (bytes != std::ssize(secret)) return Found::kDamaged;
  std::memcpy(secret.data(), found.data(), secret.size());
  return Found::kSecret;
}

Result<void> make_secret(const fs::path& file, size_t bytes) {
  std::vector<std::byte> secret(bytes);
  if (!fill_random(secret)) return secret_error(file, "random bytes");
  // Written completely under another name first, and flushed to the disk, so that a process that
  // finds the file finds all of it, even after a power cut.
  const fs::path temporary = fmt::format("{}.{}", file.string(), ::getpid());
  Result<void> written;
  {
    const SecretFd made(
        ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (made.get() < 0) return secret_error(temporary, "cannot be made");
    if (::write(made.get(), secret.data(), bytes) != std::ssize(secret) ||
        ::fsync(made.get()) != 0) {
      written = secret_error(temporary, "cannot be written");
    }
  }
  if (written.ok() && ::link(temporary.c_str(), file.c_str()) != 0 && errno != EEXIST) {
    written = secret_error(file, "cannot be made");
  }
  ::unlink(temporary.c_str());
  if (!written.ok()) return written;
  const SecretFd folder(::open(file.parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() >= 0) ::fsync(folder.get());
  return {};
}

}  // namespace

Result<void> read_or_make_secret(const fs::path& file, std::span<std::byte> secret) {
  const fs::path aside = file.string() + ".damaged";
  for (int attempt = 0; attempt < kSecretAttempts; ++attempt) {
    HEARTH_ASSIGN_OR_RETURN(Found found, read_secret(file, secret));
    if (found == Found::kSecret) return {};
    if (found == Found::kNothing) {
      HEARTH_TRY(make_secret(file, secret.size()));
      continue;
    }
    std::error_code problem;
    fs::remove_all(aside, problem);
    fs::rename(file, aside, problem);
    if (problem && problem != std::errc::no_such_file_or_directory) {
      return Error::io(fmt::format("{}: is damaged and cannot be moved away: {}",
                                   file.filename().string(), problem.message()));
    }
    log_warn("secret_put_aside", "file=\"{}\"", aside.string());
    // Another process may have set the damaged file aside and made a valid one meanwhile.
    HEARTH_ASSIGN_OR_RETURN(found, read_secret(aside, secret));
    if (found == Found::kSecret && ::link(aside.c_str(), file.c_str()) == 0) {
      ::unlink(aside.c_str());
    }
  }
  return Error::busy(file.filename().string() + ": keeps changing");
}

}  // namespace hearth
