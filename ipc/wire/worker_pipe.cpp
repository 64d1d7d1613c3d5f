#include "ipc/wire/worker_pipe.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "ipc/files/paths.h"
#include "kernels/base/check.h"
#include "kernels/base/little_endian.h"
#include "kernels/base/numbers.h"

namespace hearth::ipc {
namespace {

constexpr size_t kHeaderBytes = 16;
constexpr size_t kReadBytes = 64 << 10;
// Frees buffers that grew for a long message.
constexpr size_t kKeptBytes = 1 << 20;
// Messages are gathered in blocks of about this size; a longer one is a block of its own.
constexpr size_t kOwnBlockBytes = 256 << 10;
// Far above any message of either end, so a greater length shows that the stream is invalid.
constexpr uint32_t kMessageBytesMax = 1u << 31;

Error pipe_error(std::string_view what) {
  return Error::io(fmt::format("{}: {}", what, std::strerror(errno)));
}

void append_header(std::string& out, PipeKind kind, uint64_t number, size_t bytes) {
  HEARTH_CHECK(bytes < kMessageBytesMax, "{} bytes", bytes);
  append_size(out, bytes);
  append_u32(out, to_underlying(kind));
  append_u64(out, number);
}

}  // namespace

void append_pipe_message(std::string& out, const PipeMessage& message) {
  append_header(out, message.kind, message.number, message.bytes.size());
  out.append(message.bytes);
}

std::span<char> PipeReader::room() {
  if (begin_ == end_) {
    begin_ = end_ = 0;
    if (buffer_.size() > kKeptBytes) {
      buffer_.clear();
      buffer_.shrink_to_fit();
    }
  }
  if (buffer_.size() - end_ < kReadBytes) {
    if (begin_ > 0) {
      std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
      end_ -= std::exchange(begin_, 0);
    }
    if (buffer_.size() - end_ < kReadBytes) buffer_.resize(2 * end_ + kReadBytes);
  }
  return {buffer_.data() + end_, kReadBytes};
}

Result<std::optional<PipeMessage>> PipeReader::next() {
  if (end_ - begin_ < kHeaderBytes) return std::optional<PipeMessage>();
  const char* header = buffer_.data() + begin_;
  const auto bytes = load_u32(header);
  const auto kind = load_u32(header + 4);
  if (bytes >= kMessageBytesMax || kind >= kNumPipeKinds) {
    return Error::protocol(fmt::format("message of kind {} and {} bytes, want a kind below {}",
                                       kind, bytes, kNumPipeKinds));
  }
  if (end_ - begin_ - kHeaderBytes < bytes) return std::optional<PipeMessage>();
  begin_ += kHeaderBytes + bytes;
  return std::optional<PipeMessage>(
      {static_cast<PipeKind>(kind), load_u64(header + 8), {header + kHeaderBytes, bytes}});
}

WorkerPipe::WorkerPipe(int fd) : fd_(fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  HEARTH_CHECK(flags >= 0 && ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0, "fd={}", fd);
}

WorkerPipe::~WorkerPipe() {
  if (fd_ >= 0) ::close(fd_);
}

WorkerPipe::WorkerPipe(WorkerPipe&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      reader_(std::move(other.reader_)),
      out_(std::exchange(other.out_, std::deque<std::string>(1))),
      sent_(std::exchange(other.sent_, 0)) {}

Result<WorkerPipe> WorkerPipe::connect(const std::filesystem::path& socket) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = socket.string();
  if (path.size() >= sizeof address.sun_path) {
    return Error::invalid(
        fmt::format("{}: a socket's path has at most {} bytes", path, kMaxSocketPathBytes));
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return pipe_error("socket");
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    const Error error = pipe_error(fmt::format("connect {}", path));
    ::close(fd);
    return error;
  }
  return WorkerPipe(fd);
}

bool WorkerPipe::send(const PipeMessage& message) {
  append_pipe_message(block_with_room(), message);
  return write();
}

bool WorkerPipe::send(PipeKind kind, uint64_t number, std::string bytes) {
  if (bytes.size() < kOwnBlockBytes) return send({kind, number, bytes});
  append_header(block_with_room(), kind, number, bytes.size());
  out_.push_back(std::move(bytes));
  return write();
}

std::string& WorkerPipe::block_with_room() {
  return out_.back().size() < kOwnBlockBytes ? out_.back() : out_.emplace_back();
}

bool WorkerPipe::write() {
  while (has_unsent()) {
    const std::string& block = out_.front();
    if (sent_ < block.size()) {
      const ssize_t n = ::send(fd_, block.data() + sent_, block.size() - sent_, MSG_NOSIGNAL);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
      sent_ += n;
    } else {
      out_.pop_front();
      sent_ = 0;
    }
  }
  sent_ = 0;
  out_.front().clear();
  if (out_.front().capacity() > kKeptBytes) out_.front().shrink_to_fit();
  return true;
}

WorkerPipe::Read WorkerPipe::read() {
  const std::span<char> room = reader_.room();
  ssize_t n = -1;
  do {
    n = ::recv(fd_, room.data(), room.size(), 0);
  } while (n < 0 && errno == EINTR);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Read::kDrained;
  if (n <= 0) return Read::kEnded;
  reader_.filled(n);
  return std::cmp_equal(n, room.size()) ? Read::kMore : Read::kDrained;
}

}  // namespace hearth::ipc
