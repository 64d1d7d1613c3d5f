#pragma once
// The readiness protocol of systemd: one datagram per message to $NOTIFY_SOCKET. Without that
// variable no call has an effect.

#include <cstdint>
#include <string>
#include <string_view>

namespace hearth::broker {

class SystemdNotifier {
 public:
  /// Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID and removes them from the environment, so
  /// that no child can notify in our name.
  SystemdNotifier();
  ~SystemdNotifier();
  SystemdNotifier(const SystemdNotifier&) = delete;
  SystemdNotifier& operator=(const SystemdNotifier&) = delete;

  void ready(std::string_view status) { send("READY=1\nSTATUS=" + std::string(status)); }
  void status(std::string_view status) { send("STATUS=" + std::string(status)); }
  /// Asks for this much time, from now, to finish starting or stopping; overrides the unit file.
  void extend_timeout_ms(int64_t ms) { send("EXTEND_TIMEOUT_USEC=" + std::to_string(ms * 1000)); }
  /// Follow it by ready().
  void reloading() { send("RELOADING=1\nSTATUS=reading the configuration"); }
  void stopping() { send("STOPPING=1\nSTATUS=stopping"); }
  void watchdog() { send("WATCHDOG=1"); }

  /// A service manager listens.
  bool active() const { return fd_ >= 0; }
  /// Interval of watchdog() calls (half of the interval that systemd allows); 0: never.
  int64_t watchdog_interval_ms() const { return watchdog_interval_ms_; }

 private:
  void send(const std::string& message);

  int fd_ = -1;
  std::string address_;  // path, or '@' and an abstract name
  int64_t watchdog_interval_ms_ = 0;
};

}  // namespace hearth::broker
