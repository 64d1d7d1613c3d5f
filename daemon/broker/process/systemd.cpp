#include "daemon/broker/process/systemd.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <cstring>

namespace hearth::broker {
namespace {

std::string take_variable(const char* name) {
  const char* value = std::getenv(name);
  std::string out = value == nullptr ? "" : value;
  ::unsetenv(name);
  return out;
}

int64_t parse_number(const std::string& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() ? value : 0;
}

}  // namespace

SystemdNotifier::SystemdNotifier() : address_(take_variable("NOTIFY_SOCKET")) {
  const int64_t watchdog_us = parse_number(take_variable("WATCHDOG_USEC"));
  const std::string watchdog_pid = take_variable("WATCHDOG_PID");
  if (address_.size() < 2 || address_.size() >= sizeof(sockaddr_un::sun_path) ||
      (address_[0] != '/' && address_[0] != '@')) {
    return;
  }
  fd_ = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (watchdog_us > 0 && (watchdog_pid.empty() || parse_number(watchdog_pid) == ::getpid())) {
    watchdog_interval_ms_ = watchdog_us / 2000;
  }
}

SystemdNotifier::~SystemdNotifier() {
  if (fd_ >= 0) ::close(fd_);
}

void SystemdNotifier::send(const std::string& message) {
  if (fd_ < 0) return;
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  std::memcpy(to.sun_path, address_.data(), address_.size());
  if (to.sun_path[0] == '@') to.sun_path[0] = '\0';
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address_.size());
  // The message is lost if systemd does not listen; nothing depends on it.
  [[maybe_unused]] const ssize_t sent = ::sendto(fd_, message.data(), message.size(), MSG_NOSIGNAL,
                                                 reinterpret_cast<const sockaddr*>(&to), length);
}

}  // namespace hearth::broker
