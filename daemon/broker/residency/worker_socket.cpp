#include "daemon/broker/residency/worker_socket.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "kernels/base/log.h"

namespace hearth::broker {
namespace {

using boost::asio::posix::stream_descriptor;

constexpr int kBacklog = 4;

int32_t pid_of_peer(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 ? peer.pid : 0;
}

}  // namespace

Result<std::unique_ptr<WorkerSocket>> WorkerSocket::listen(boost::asio::io_context& io,
                                                           const std::filesystem::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = path.string();
  if (name.size() >= sizeof address.sun_path) {
    return Error::invalid(fmt::format("{}: too long for a socket", name));
  }
  std::memcpy(address.sun_path, name.c_str(), name.size() + 1);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) {
    return Error::io(fmt::format("socket: {}", std::strerror(errno)));
  }
  std::unique_ptr<WorkerSocket> out(new WorkerSocket(io, fd));
  ::unlink(name.c_str());  // left by a daemon that was killed
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::chmod(name.c_str(), 0600) != 0 ||  // in a directory of mode 0700
      ::listen(fd, kBacklog) != 0) {
    return Error::io(fmt::format("{}: {}", name, std::strerror(errno)));
  }
  return out;
}

WorkerSocket::WorkerSocket(boost::asio::io_context& io, int listen_fd)
    : listener_(io, listen_fd), stream_(io) {}

WorkerSocket::~WorkerSocket() {
  *alive_ = false;
  if (stream_.is_open()) stream_.release();
}

void WorkerSocket::start(int32_t pid, Reader& reader) {
  pid_ = pid;
  reader_ = &reader;
  wait_for_peer();
}

void WorkerSocket::wait_for_peer() {
  listener_.async_wait(stream_descriptor::wait_read,
                       [this, alive = alive_](const boost::system::error_code& error) {
                         if (!*alive || error || pipe_ != nullptr) return;
                         accept();
                         pipe_ != nullptr ? wait_for_bytes() : wait_for_peer();
                       });
}

// The directory keeps other users out; this check rejects other processes of the same user.
void WorkerSocket::accept() {
  const int fd = ::accept4(listener_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC);
  if (fd < 0) return;
  if (const int32_t pid = pid_of_peer(fd); pid != pid_) {
    log_warn("worker_socket_intruder", "want_pid={} met_pid={}", pid_, pid);
    ::close(fd);
    return;
  }
  pipe_ = std::make_shared<ipc::WorkerPipe>(fd);
  stream_.assign(fd);
  boost::system::error_code ignored;
  listener_.close(ignored);
}

void WorkerSocket::wait_for_bytes() {
  stream_.async_wait(stream_descriptor::wait_read,
                     [this, alive = alive_](const boost::system::error_code& error) {
                       if (!*alive || error) return;
                       if (take() && *alive) wait_for_bytes();
                     });
}

// One read of at most 64 KiB per turn of the loop, so that a flood on one socket does not starve
// the others. False: nothing more to wait for.
bool WorkerSocket::take() {
  const std::shared_ptr<bool> alive = alive_;
  const std::shared_ptr<ipc::WorkerPipe> pipe = pipe_;
  if (broken_ || pipe->read() == ipc::WorkerPipe::Read::kEnded) return false;
  while (true) {
    const Result<std::optional<ipc::PipeMessage>> message = pipe->next();
    if (!message) {
      broken_ = true;
      reader_->on_broken(message.error().message);
      return false;
    }
    if (!*message) return true;
    reader_->on_message(**message);
    if (!*alive) return false;
  }
}

void WorkerSocket::drain() {
  if (pipe_ == nullptr && pid_ != 0) accept();
  if (pipe_ == nullptr) return;
  const std::shared_ptr<bool> alive = alive_;
  const std::shared_ptr<ipc::WorkerPipe> pipe = pipe_;
  for (pollfd item{.fd = pipe->fd(), .events = POLLIN, .revents = 0};
       *alive && ::poll(&item, 1, 0) == 1;) {
    if (!take()) return;
  }
}

bool WorkerSocket::send(ipc::PipeKind kind, uint64_t number, std::string bytes) {
  if (pipe_ == nullptr || !pipe_->send(kind, number, std::move(bytes))) return false;
  if (pipe_->has_unsent()) wait_for_room();
  return true;
}

void WorkerSocket::wait_for_room() {
  if (std::exchange(waiting_for_room_, true)) return;
  stream_.async_wait(stream_descriptor::wait_write,
                     [this, alive = alive_](const boost::system::error_code& error) {
                       if (!*alive) return;
                       waiting_for_room_ = false;
                       // If the other end is gone, the end of its process is detected elsewhere.
                       if (error || !pipe_->write()) return;
                       if (pipe_->has_unsent()) wait_for_room();
                     });
}

}  // namespace hearth::broker
