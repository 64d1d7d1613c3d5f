#include "ipc/wire/probe.h"

#include <fmt/core.h>
#include <grp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "ipc/files/paths.h"
#include "ipc/text/utf8.h"

namespace hearth::ipc {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

/// Whose group opens the socket's directory, as words; empty if it is unknown.
std::string who_may(const std::filesystem::path& socket) {
  struct stat about {};
  if (::stat(socket.parent_path().c_str(), &about) != 0) return "";
  const group* owner = ::getgrgid(about.st_gid);
  const std::string name = owner != nullptr ? owner->gr_name : std::to_string(about.st_gid);
  return fmt::format(" (the daemon serves members of group {})", to_valid_utf8(name));
}

}  // namespace

Result<PeerCredentials> probe_listener(const std::filesystem::path& socket) {
  const std::string path = socket.string();
  const auto failed = [&](int problem) {
    std::string text = fmt::format("{}: {}", to_valid_utf8(path), std::strerror(problem));
    if (problem == EACCES || problem == EPERM) return Error::forbidden(text + who_may(socket));
    return Error::unavailable(std::move(text));
  };
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() > kMaxSocketPathBytes) return failed(ENAMETOOLONG);
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);

  const Descriptor fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd.get() < 0) return failed(errno);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 &&
      errno != EAGAIN) {  // EAGAIN: a process listens, with a full backlog
    return failed(errno);
  }
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return failed(errno);
  return PeerCredentials{peer.uid, peer.gid, peer.pid};
}

}  // namespace hearth::ipc
