#include "engine/store/store_key.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "engine/store/keyed_hash.h"
#include "engine/store/stored_row.h"
#include "kernels/base/random.h"

namespace hearth::engine {
namespace fs = std::filesystem;
namespace {

/// Version of what is hashed and stored; part of every checksum.
constexpr uint64_t kFormat = 1;

/// Attempts to make a key while other processes make and replace theirs.
constexpr int kAttempts = 5;

Error io_error(const fs::path& file, std::string_view what) {
  return Error::io(fmt::format("{}: {}: {}", file.filename().string(), what, std::strerror(errno)));
}

class Fd {
 public:
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd() {
    if (fd_ >= 0) ::close(fd_);
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

// The content of a valid key file; nothing if the file is absent, not a regular file, or of another
// size (0 after a power cut before the bytes reached the disk).
Result<std::optional<StoreKey>> StoreKey::read(const fs::path& file, bool* damaged) {
  *damaged = false;
  // O_NONBLOCK: opening a FIFO must not wait for its writer.
  const Fd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (fd.get() < 0 && errno == ENOENT) return std::optional<StoreKey>();
  if (fd.get() < 0 && errno != ELOOP) return io_error(file, "cannot be opened");
  struct stat status {};
  if (fd.get() >= 0 && ::fstat(fd.get(), &status) != 0) return io_error(file, "cannot be read");
  if (fd.get() < 0 || !S_ISREG(status.st_mode)) {
    *damaged = true;
    return std::optional<StoreKey>();
  }
  std::array<std::byte, kBytes + 1> found;
  const ssize_t bytes = ::read(fd.get(), found.data(), found.size());
  if (bytes < 0) return io_error(file, "cannot be read");
  if (bytes != ssize_t{kBytes}) {
    *damaged = true;
    return std::optional<StoreKey>();
  }
  StoreKey key;
  std::memcpy(key.secret_.data(), found.data(), kBytes);
  return std::optional(std::move(key));
}

Result<StoreKey> StoreKey::open(const fs::path& file) {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    bool damaged = false;
    HEARTH_ASSIGN_OR_RETURN(std::optional<StoreKey> found, read(file, &damaged));
    if (found) return std::move(*found);
    if (damaged) {
      HEARTH_TRY(put_aside(file));
      // Another process may have set the damaged file aside and made a valid one meanwhile.
      const fs::path aside = aside_name(file);
      HEARTH_ASSIGN_OR_RETURN(found, read(aside, &damaged));
      if (found && ::link(aside.c_str(), file.c_str()) == 0) ::unlink(aside.c_str());
      continue;
    }
    HEARTH_TRY(make(file));
  }
  return Error::busy(file.filename().string() + ": keeps changing");
}

Result<void> StoreKey::make(const fs::path& file) {
  std::array<std::byte, kBytes> secret;
  if (!fill_random(secret)) return io_error(file, "random bytes");
  // Written completely under another name first, and flushed to the disk, so that a process that
  // finds the file finds all of it, even after a power cut.
  const fs::path temporary = fmt::format("{}.{}", file.string(), ::getpid());
  Result<void> written;
  {
    const Fd made(
        ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (made.get() < 0) return io_error(temporary, "cannot be made");
    if (::write(made.get(), secret.data(), kBytes) != ssize_t{kBytes} || ::fsync(made.get()) != 0) {
      written = io_error(temporary, "cannot be written");
    }
  }
  if (written.ok() && ::link(temporary.c_str(), file.c_str()) != 0 && errno != EEXIST) {
    written = io_error(file, "cannot be made");
  }
  ::unlink(temporary.c_str());
  if (!written.ok()) return written;
  const Fd folder(::open(file.parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() >= 0) ::fsync(folder.get());
  return {};
}

std::vector<Hash128> StoreKey::prefixes(const KvLayout& layout, const Chain& chain) const {
  std::vector<Hash128> out;
  const size_t chunk_tokens = int64_t{layout.chunk_blocks()} * layout.block_size;
  KeyedHash hasher(secret_);
  hasher.number(kFormat);
  hasher.hash(chain.root);
  for (size_t begin = 0; begin < chain.tokens.size(); begin += chunk_tokens) {
    out.push_back(hasher.digest());
    if (chain.tokens.size() - begin < chunk_tokens) break;
    hasher.bytes(std::as_bytes(std::span(chain.tokens).subspan(begin, chunk_tokens)));
  }
  return out;
}

struct StoreKey::Check::State {
  KeyedHash hasher;
};

void StoreKey::Check::Free::operator()(State* state) const { delete state; }

void StoreKey::Check::add(std::span<const std::byte> bytes) { state_->hasher.bytes(bytes); }

Hash128 StoreKey::Check::digest() const { return state_->hasher.digest(); }

StoreKey::Check StoreKey::begin_check(const Hash128& layout, const ChunkRow& row,
                                      size_t data_bytes) const {
  Check check;
  check.state_.reset(new Check::State{KeyedHash(secret_)});
  KeyedHash& hasher = check.state_->hasher;
  hasher.number(kFormat);
  for (const Hash128* hash :
       {&layout, &row.root, &row.parent, &row.first, &row.last, &row.prefix}) {
    hasher.hash(*hash);
  }
  hasher.list(std::span(row.owner));
  hasher.number(row.shape.index);
  hasher.number(row.shape.num_blocks);
  hasher.list(std::span(row.shape.present));
  hasher.list(std::span(row.tokens));
  hasher.number(data_bytes);
  return check;
}

Hash128 StoreKey::check(const Hash128& layout, const ChunkRow& row,
                        std::span<const std::byte> data) const {
  Check check = begin_check(layout, row, data.size());
  check.add(data);
  return check.digest();
}

}  // namespace hearth::engine
