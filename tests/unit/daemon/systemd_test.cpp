#include "daemon/broker/process/systemd.h"

#include <doctest/doctest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>

namespace hearth::broker {
namespace {

// systemd as a service sees it: a datagram socket.
struct FakeSystemd {
  int fd;
  std::string address;
  FakeSystemd() : fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0)) {
    address = "@hearth-test-" + std::to_string(::getpid());
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    std::memcpy(at.sun_path + 1, address.data() + 1, address.size() - 1);
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address.size());
    REQUIRE(::bind(fd, reinterpret_cast<sockaddr*>(&at), length) == 0);
    ::setenv("NOTIFY_SOCKET", address.c_str(), 1);
  }
  ~FakeSystemd() { ::close(fd); }
  std::string next() const {
    char buffer[256];
    const ssize_t n = ::recv(fd, buffer, sizeof buffer, 0);
    return n < 0 ? "" : std::string(buffer, static_cast<size_t>(n));
  }
};

TEST_CASE("systemd is notified, and children do not inherit its socket") {
  FakeSystemd systemd;
  ::setenv("WATCHDOG_USEC", "3000000", 1);
  ::setenv("WATCHDOG_PID", std::to_string(::getpid()).c_str(), 1);
  SystemdNotifier notifier;
  CHECK(std::getenv("NOTIFY_SOCKET") == nullptr);
  CHECK(std::getenv("WATCHDOG_USEC") == nullptr);
  CHECK(notifier.watchdog_interval_ms() == 1500);
  notifier.ready("serving");
  notifier.watchdog();
  notifier.status("busy");
  notifier.extend_timeout_ms(30'000);
  CHECK(notifier.active());
  notifier.stopping();
  CHECK(systemd.next() == "READY=1\nSTATUS=serving");
  CHECK(systemd.next() == "WATCHDOG=1");
  CHECK(systemd.next() == "STATUS=busy");
  CHECK(systemd.next() == "EXTEND_TIMEOUT_USEC=30000000");
  CHECK(systemd.next() == "STOPPING=1\nSTATUS=stopping");
}

TEST_CASE("another process's watchdog is ignored; without a socket nothing happens") {
  {
    FakeSystemd systemd;
    ::setenv("WATCHDOG_USEC", "3000000", 1);
    ::setenv("WATCHDOG_PID", "1", 1);
    CHECK(SystemdNotifier().watchdog_interval_ms() == 0);
  }
  ::setenv("WATCHDOG_USEC", "3000000", 1);
  SystemdNotifier silent;
  CHECK(silent.watchdog_interval_ms() == 0);
  CHECK_FALSE(silent.active());
  silent.ready("not received");
  ::setenv("NOTIFY_SOCKET", "not-a-path", 1);
  SystemdNotifier wrong;
  wrong.ready("not received");
}

}  // namespace
}  // namespace hearth::broker
