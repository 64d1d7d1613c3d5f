#include "tests/e2e/notify_socket.h"

#include <doctest/doctest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "tests/e2e/daemon.h"

namespace hearth::e2e {

NotifySocket::NotifySocket(const std::filesystem::path& folder)
    : fd_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
  REQUIRE(fd_ >= 0);
  const std::string path = (folder / "notify").string();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  REQUIRE(path.size() < sizeof address.sun_path);
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  REQUIRE(::bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  ::setenv("NOTIFY_SOCKET", path.c_str(), 1);
}

NotifySocket::~NotifySocket() {
  ::unsetenv("NOTIFY_SOCKET");
  ::close(fd_);
}

bool NotifySocket::hears(const std::string& words) {
  return eventually([&] {
    char message[512];
    for (ssize_t n; (n = ::recv(fd_, message, sizeof message, MSG_DONTWAIT)) > 0;) {
      heard_.append(message, static_cast<size_t>(n)).push_back('\n');
    }
    return heard_.find(words) != std::string::npos;
  });
}

}  // namespace hearth::e2e
