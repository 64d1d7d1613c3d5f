#include "engine/store/store_key.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "engine/store/keyed_hash.h"

namespace hearth::engine {
namespace fs = std::filesystem;
namespace {

/// Version of what is hashed and stored; part of every checksum.
constexpr uint64_t kFormat = 1;

Error io_error(const fs::path& file, std::string_view what) {
  return {ErrorCode::kIo,
          fmt::format("{}: {}: {}", file.filename().string(), what, std::strerror(errno)), ""};
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

Result<StoreKey> StoreKey::open(const fs::path& file) {
  StoreKey key;
  Fd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (fd.get() < 0 && errno == ENOENT) {
    if (::getrandom(key.secret_.data(), kBytes, 0) != static_cast<ssize_t>(kBytes)) {
      return io_error(file, "random bytes");
    }
    // Written in full under another name first: whoever finds the file finds all of it.
    const fs::path temporary = fmt::format("{}.{}", file.string(), ::getpid());
    {
      Fd made(
          ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
      if (made.get() < 0) return io_error(temporary, "cannot be made");
      if (::write(made.get(), key.secret_.data(), kBytes) != static_cast<ssize_t>(kBytes)) {
        const Error error = io_error(temporary, "cannot be written");
        ::unlink(temporary.c_str());
        return error;
      }
    }
    const bool linked = ::link(temporary.c_str(), file.c_str()) == 0;
    const int problem = errno;
    ::unlink(temporary.c_str());
    if (linked) return key;
    errno = problem;
    if (problem != EEXIST) return io_error(file, "cannot be made");
    return open(file);
  }
  if (fd.get() < 0) return io_error(file, "cannot be opened");
  std::array<std::byte, kBytes + 1> found;
  const ssize_t bytes = ::read(fd.get(), found.data(), found.size());
  if (bytes < 0) return io_error(file, "cannot be read");
  if (bytes != static_cast<ssize_t>(kBytes)) {
    return Error{ErrorCode::kIo,
                 fmt::format("{}: {} bytes, want {}", file.filename().string(), bytes, kBytes), ""};
  }
  std::memcpy(key.secret_.data(), found.data(), kBytes);
  return key;
}

std::vector<Hash128> StoreKey::prefixes(const KvLayout& layout, const Chain& chain) const {
  std::vector<Hash128> out;
  const auto chunk_tokens =
      static_cast<size_t>(layout.chunk_blocks()) * static_cast<size_t>(layout.block_size);
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
  hasher.number(static_cast<uint64_t>(row.shape.index));
  hasher.number(static_cast<uint64_t>(row.shape.num_blocks));
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
